"""What a run ran on: versions of everything that computes, and the CPU's name."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from mpnet import __version__
from mpnet.kernels.isa import compiler

_DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "numpy": ("numpy",),
    "opencv": ("opencv-python", "opencv-python-headless", "opencv-contrib-python", "opencv-contrib-python-headless"),
    "pycocotools": ("pycocotools",),
}
_CPU_INFO_BYTES = 1 << 20


def versions() -> dict[str, Any]:
    """The `versions` of a result: mpnet, python, numpy, opencv, pycocotools, compiler, platform, cpu."""
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
    """The processor's name as the system gives it; the architecture where it gives none."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read(_CPU_INFO_BYTES).splitlines()
    except OSError:
        lines = []
    for key in ("model name", "Model", "Hardware", "cpu model"):
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() == key and value.strip():
                return value.strip()
    import platform

    return platform.processor() or platform.machine() or "unknown"


def cpu_count() -> int:
    """Cores that this process may use."""
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
