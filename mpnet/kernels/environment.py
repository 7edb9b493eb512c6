# SPDX-License-Identifier: MIT
"""The environment of a run: versions of everything that computes, and the CPU's name."""

from __future__ import annotations

import os
from functools import lru_cache

from mpnet import __version__
from mpnet.kernels.isa import compiler, cpu_features

_DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "numpy": ("numpy",),
    "opencv": ("opencv-python", "opencv-python-headless", "opencv-contrib-python", "opencv-contrib-python-headless"),
    "pycocotools": ("pycocotools",),
}
_CPU_INFO_BYTES = 1 << 20


def versions() -> dict[str, str | None]:
    """Return the `versions` of a result: mpnet, python, numpy, opencv, pycocotools, compiler, platform, cpu."""
    import platform

    return {
        "mpnet": __version__,
        "python": platform.python_version(),
        **{name: _installed(candidates) for name, candidates in _DISTRIBUTIONS.items()},
        "compiler": compiler(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "cpu": cpu_name(),
    }


@lru_cache(maxsize=1)
def cpu_name() -> str:
    """Return the processor's name as the system gives it; the architecture where it gives none."""
    name = next(filter(None, map(_cpu_info, ("model name", "Model", "Hardware", "cpu model"))), "")
    import platform

    return name or platform.processor() or platform.machine() or "unknown"


@lru_cache(maxsize=1)
def int8_sums_saturate() -> bool:
    """Return whether this CPU's int8 instructions lose sums: x86 without VNNI adds pairs of products in 16 bits.

    A product of uint8 and int8 is at most 255 * 127 = 32385, so that a pair can exceed int16. mpnet's own kernels do not
    use such instructions.
    """
    import platform

    if platform.machine().lower() not in ("x86_64", "amd64", "i386", "i686"):
        return False
    return "avx512vnni" not in cpu_features() and "avx_vnni" not in _cpu_info("flags").split()


def _cpu_info(key: str) -> str:
    """Return the first value of a key of /proc/cpuinfo that is not empty; '' where there is none."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read(_CPU_INFO_BYTES).splitlines()
    except OSError:
        return ""
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in pairs if name.strip() == key and value.strip()), "")


def cpu_count() -> int:
    """Return the cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS has no affinity
        return os.cpu_count() or 1


def _installed(candidates: tuple[str, ...]) -> str | None:
    import importlib.metadata  # slow to import

    for name in candidates:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
