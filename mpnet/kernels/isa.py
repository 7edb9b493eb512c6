# SPDX-License-Identifier: MIT
"""The ISA levels of this build, which of them this CPU can run, and the one in use.

The level is the best usable one, unless `MPNET_ISA` (read once, on first use) or `kernels(name)` names another.
A level that is unknown or that the CPU cannot run is an error, never a silent fallback.
"""

from __future__ import annotations

import functools
import itertools
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpnet.errors import KernelError
from mpnet.kernels._core import ffi, lib
from mpnet.kernels.native import NativeKernels

if TYPE_CHECKING:
    from mpnet.kernels._core import CData


@dataclass(frozen=True)
class IsaLevel:
    """One table of kernels. usable: this CPU and operating system can run it; active: the default of this process."""

    name: str
    usable: bool
    active: bool


@functools.lru_cache(maxsize=1)
def _tables() -> dict[str, CData]:
    """Name -> C table, best first."""
    tables = (lib.mp_table_at(i) for i in range(lib.mp_table_count()))
    return {ffi.string(lib.mp_table_name(table)).decode(): table for table in tables}


def _select(name: str, origin: str) -> str:
    tables = _tables()
    usable = [level for level, table in tables.items() if lib.mp_table_usable(table)]
    if name in ("", "auto"):
        return usable[0]
    if name not in tables:
        raise KernelError(f"{origin}: unknown ISA level {name!r}; this build has {', '.join(tables)} (or auto)")
    if name not in usable:
        raise KernelError(f"{origin}: this CPU cannot run ISA level {name!r}; it can run {', '.join(usable)}")
    return name


@functools.lru_cache(maxsize=1)
def active_level() -> str:
    """Return the level that `MPNET_ISA` names, else the best usable one. Raises: KernelError for an unusable name."""
    return _select(os.environ.get("MPNET_ISA", ""), "MPNET_ISA")


def isa_levels() -> tuple[IsaLevel, ...]:
    """Return all levels compiled into this build, best first. Raises KernelError if MPNET_ISA names none that can run."""
    active = active_level()
    return tuple(IsaLevel(name, bool(lib.mp_table_usable(table)), name == active) for name, table in _tables().items())


def usable_levels() -> tuple[str, ...]:
    """Return the names of the levels that this CPU can run, best first."""
    return tuple(name for name, table in _tables().items() if lib.mp_table_usable(table))


def cpu_features() -> tuple[str, ...]:
    """List the features of the CPU and the operating system that some level asks for."""
    words = itertools.takewhile(bool, map(lib.mp_cpu_feature, itertools.count()))
    return tuple(" ".join(ffi.string(feature).decode() for feature in words).split())


def compiler() -> str:
    """Name and version of the compiler that built the C core."""
    return str(ffi.string(lib.mp_compiler()).decode())


@functools.cache
def _kernels(name: str) -> NativeKernels:
    return NativeKernels(name, _tables()[name])


def kernels(name: str | None = None, origin: str = "--isa") -> NativeKernels:
    """Return the C kernels of level `name` ("auto": the best usable; None: the active one).

    origin: where the name is from.

    Raises KernelError as above.
    """
    return _kernels(active_level() if name is None else _select(name, origin))
