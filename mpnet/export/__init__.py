"""What a configuration can be exported to: one file per target, found by its name.

A new target is a file here that declares `TARGET`, and its tests; `mpnet export --to NAME` takes it up.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Mapping

from mpnet.errors import ConfigError


@dataclass(frozen=True)
class Chosen:
    """What is exported. key: precision string; path, content: the network file; document: what a result or a store says
    of it: name, protocol, sources, digests."""

    key: str
    path: Path
    content: bytes
    document: Mapping[str, Any]


@dataclass(frozen=True)
class Exported:
    """content: of the file; details: what `mpnet export --json` says besides."""

    content: bytes
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Target:
    """One form that other programs read.

    what, suffix: for --help. lacks: what it cannot express, '' for nothing.
    write:        raises MpnetError, one line, for a configuration that it cannot express.
    packages:     modules that writing needs besides mpnet's own; extra: the extra of mpnet that brings them.
    """

    what: str
    suffix: str
    write: Callable[[Chosen], Exported]
    lacks: str = ""
    packages: tuple[str, ...] = ()
    extra: str = ""


def targets() -> dict[str, Target]:
    """All targets by name; what writing needs is imported when it is needed."""
    return {
        module.name: importlib.import_module(f"{__name__}.{module.name}").TARGET for module in pkgutil.iter_modules(__path__)
    }


def describe(known: Mapping[str, Target]) -> str:
    """The targets for --help."""
    return "; ".join(
        f"{name}: {target.what} ({target.suffix}){f', without {target.lacks}' if target.lacks else ''}"
        for name, target in known.items()
    )


def export(name: str, chosen: Chosen) -> Exported:
    """Write a configuration as the target `name`. Raises: ConfigError when packages are missing; as the target does."""
    target = targets()[name]
    absent = [package for package in target.packages if find_spec(package) is None]
    if absent:
        raise ConfigError(f"--to {name}: needs {', '.join(absent)}; pip install 'mpnet[{target.extra}]'")
    return target.write(chosen)
