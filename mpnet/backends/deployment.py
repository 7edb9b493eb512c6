# SPDX-License-Identifier: MIT
"""One configuration in another engine: exported once, opened as often as threads need it, named by all that decides it."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Callable, Mapping

from mpnet.backends import Backend, Executed, Model, backend
from mpnet.engine.assign import assign
from mpnet.errors import MpnetError
from mpnet.export import Configuration, Exported, export
from mpnet.model.precision import PRECISIONS
from mpnet.packages import require

UNIFORM = ("fp32", "int8")
"""What a mix has to be faster than, and what it can hardly be faster than."""


@dataclass(frozen=True, eq=False)
class Deployment:
    """See the module.

    engine, version: who runs it. digest: of what it was given. layers: see `Exported`.
    open: threads -> a model. notes: what the user should know, one line each.
    """

    engine: str
    version: str
    digest: str
    exported: Exported
    open: Callable[[int], Model]
    executed: Executed | None
    notes: tuple[str, ...] = ()

    @property
    def identity(self) -> dict[str, Any]:
        """Return the parts of a trial's identity that say who ran it and what it was given."""
        return {"engine": self.engine, "version": self.version, "files": self.digest}


def deploy(name: str, configuration: Configuration) -> Deployment:
    """Deploy a configuration in the engine called `name`.

    Raises: ConfigError for an unknown engine, packages that are missing or too old and layers that it cannot run;
    EngineError when it refuses the file.
    """
    engine = ready(name)
    exported = export(engine.target, configuration, engine.flavour)
    model = engine.load(exported, 1)
    executed = model.executed()
    notes = (mode_note(name, engine, configuration), engine.caution(executed or {}))
    return Deployment(
        name,
        model.version,
        files_digest(exported.files),
        exported,
        partial(engine.load, exported),
        executed,
        tuple(filter(None, notes)),
    )


def uniforms(name: str, configuration: Configuration) -> dict[str, Deployment]:
    """Deploy the network with every layer at one precision in the same engine, by the precision's name.

    What the engine cannot run and what the configuration is itself are left out; of several engines by preference there is
    none.
    """
    deployments, weighted = {}, configuration.precisions.weighted
    for precision in UNIFORM:
        precisions = assign(configuration.network, overrides=dict.fromkeys(weighted, PRECISIONS[precision]))
        if precisions.key != configuration.precisions.key:
            with suppress(MpnetError):
                deployments[precision] = deploy(name, replace(configuration, precisions=precisions))
    return deployments


def slower_note(engine: str, latency_ms: float, uniform_ms: Mapping[str, float]) -> str:
    """Return one line where an engine takes longer for a mix than for all layers in fp32, else ''."""
    fp32 = uniform_ms.get("fp32", latency_ms)
    if latency_ms <= fp32:
        return ""
    return f"{engine} takes longer than with all layers in fp32: {latency_ms:.2f} against {fp32:.2f} ms"


def ready(name: str) -> Backend:
    """Return the backend of a name, which can be used here.

    Raises: ConfigError when it is unknown or its packages are missing.
    """
    candidate = backend(name)
    require(f"engine {name}", candidate.packages, candidate.extra)
    return candidate


def files_digest(files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 (hex) of exported files."""
    digest = hashlib.sha256()
    for suffix, content in files.items():
        digest.update(f"{suffix} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def mode_note(name: str, engine: Backend, configuration: Configuration) -> str:
    """Return a line that says which quantisation mode an engine works in, when int8 layers are in another one, else ''.

    What one mode decides best need not be best in another: only under its own mode do an engine's ranks follow mpnet's.
    """
    differing: dict[str, str] = {}
    options = configuration.options
    for index in configuration.precisions.weighted:
        if configuration.precisions[index].carries_scale and index in options.complete:
            requested = options.complete[index].plain_values()
            for path, mode_value in _flat(engine.mode).items():
                value = _flat(requested).get(path)
                if value != mode_value:
                    differing[path] = f"{path} is {value}"
    if not differing:
        return ""
    settings = " ".join(f"--set quantization.{path}={value}" for path, value in _flat(engine.mode).items())
    return (
        f"{name} quantises in another mode than this configuration ({', '.join(differing.values())}); search and "
        f"measure with {settings}, or its ranks need not hold there"
    )


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat.update(_flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value})
    return flat
