# SPDX-License-Identifier: MIT
"""Modules and packages by name: declarations of a package's modules, and packages that only some commands need.

Where a package is missing, one line says what to install.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Iterable, TypeVar

from mpnet.errors import ConfigError

Declared = TypeVar("Declared")
OLDEST_VERSIONS = {
    "ai-edge-litert": "1.4",
    "cuda-bindings": "13.0",
    "flatbuffers": "23.5",
    "matplotlib": "3.7",
    "mlflow": "2.9",
    "ncnn": "1.0.20230816",
    "nvidia-cuda-nvrtc": "13.0",
    "onnx": "1.16",
    "onnxruntime": "1.17",
    "openvino": "2024.0",
    "pandas": "2.0",
    "pyarrow": "14",
    "pyopencl": "2024.1",
    "tensorboard": "2.15",
    "torch": "2.13",
    "wandb": "0.16",
}
"""Of packages that only some commands need, the oldest versions that mpnet works with; the extras of pyproject.toml ask for the
same (tests/backends/test_registry.py)."""


def declared(package: str, path: Iterable[str], name: str, kind: type[Declared]) -> dict[str, Declared]:
    """Collect what the modules of a package declare as `name`, by module; modules without it are left out.

    package, path: its `__name__` and `__path__`.
    """
    declarations = {}
    for module in pkgutil.iter_modules(path):
        value = getattr(importlib.import_module(f"{package}.{module.name}"), name, None)
        if isinstance(value, kind):
            declarations[module.name] = value
    return declarations


def program() -> str:
    """Return how a shell in this folder starts mpnet: by its name where that is on PATH, else by where it lies."""
    beside, here = Path(sys.executable).with_name("mpnet"), Path.cwd()
    if shutil.which("mpnet") or not beside.exists():
        return "mpnet"
    return shlex.quote(str(beside.relative_to(here) if beside.is_relative_to(here) else beside))


def requirements(*names: str) -> tuple[str, ...]:
    """Return the requirements of packages of OLDEST_VERSIONS, such as `onnx>=1.16`."""
    return tuple(f"{name}>={OLDEST_VERSIONS[name]}" for name in names)


def module_names(folder: Path) -> tuple[str, ...]:
    """List the names of the modules in a package's folder, in order; nothing is imported for it."""
    return tuple(module.name for module in pkgutil.iter_modules([str(folder)]))


def require(who: str, packages: Iterable[str], extra: str) -> None:
    """Check that packages are there and new enough; nothing is imported for it.

    who:      what needs them, for the message, such as `--to onnx`.
    packages: requirements such as `ai-edge-litert>=2.0`; a module has its package's name, with underscores.
    extra:    the extra of mpnet that brings them.
    Raises: ConfigError, one line with the pip command.
    """
    absent, old = [], []
    for requirement in packages:
        name, _, oldest = requirement.partition(">=")
        installed = version_of(name)
        if installed is None:
            absent.append(name)
        elif oldest and _numbers(installed) < _numbers(oldest):
            old.append(f"{name} {oldest} or newer (this is {installed})")
    if absent or old:
        raise ConfigError(f"{who}: needs {', '.join([*absent, *old])}; pip install --upgrade 'mpnet[{extra}]'")


def version_of(package: str) -> str | None:
    """Return the version of an installed package; None when its module cannot be found, '' when it does not say."""
    from importlib import metadata  # slow to import

    module = package.replace("-", "_")
    if find_spec(module) is None:
        return None
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # the same module from a package of another name, such as onnxruntime-gpu
        try:
            return str(getattr(importlib.import_module(module), "__version__", ""))
        except ImportError:
            return None


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version; one that says nothing counts as new enough."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:4])
    return numbers or (1 << 30,)
