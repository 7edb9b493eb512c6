# SPDX-License-Identifier: MIT
"""`mpnet info`: the machine and what mpnet makes of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from mpnet.cli.options import declare
from mpnet.cli.output import console, print_json
from mpnet.engine.devices import list_gpus
from mpnet.formats.files.cache import LIMIT_VARIABLE, Usage, cache_folder, cache_limit, open_cache
from mpnet.kernels.environment import cpu_count, versions
from mpnet.kernels.isa import active_level, cpu_features, isa_levels, usable_levels
from mpnet.messages import bytes_text

if TYPE_CHECKING:
    from mpnet.kernels.gpu.driver import GpuDescription


@declare("mpnet info", "mpnet info --json", quiet=False)
def command(as_json: bool) -> None:
    """Show this machine: CPU features, kernel tables and which is in use, other devices, compiler, versions."""
    levels, prepared, program_versions, gpus = isa_levels(), _prepared(), versions(), list_gpus()
    if as_json:
        print_json(
            {
                "cpu_features": cpu_features(),
                "isa_levels": [{"name": level.name, "usable": level.usable, "active": level.active} for level in levels],
                "isa_active": active_level(),
                "isa_usable": usable_levels(),
                "cores": cpu_count(),
                "devices": [asdict(gpu) for gpu in gpus],
                "versions": program_versions,
                "cache": str(cache_folder()),
                "prepared": asdict(prepared),
            }
        )
        return
    out = console()
    tables = ", ".join(
        level.name + (" (in use)" if level.active else "" if level.usable else " (not on this CPU)") for level in levels
    )
    rows = {
        "CPU": f"{program_versions['cpu']}, {cpu_count()} cores usable",
        "CPU features": " ".join(cpu_features()) or "none that kernels use",
        "kernel tables": tables,
        "devices": "; ".join(_gpu_text(gpu) for gpu in gpus) or "cpu; no OpenCL device (docs/gpu.md)",
        **{name: version or "not installed" for name, version in program_versions.items() if name != "cpu"},
        "cache": str(cache_folder()),
        "prepared weights": _prepared_text(prepared),
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        out.print(f"{name:<{width}}  {value}")


def _gpu_text(gpu: GpuDescription) -> str:
    return f"{gpu.name}: {gpu.title}{f' ({gpu.problem}: not usable)' if gpu.problem else ''}"


@dataclass(frozen=True)
class _PreparedWeights:
    """Prepared weights in the cache. folder: None where none are kept. limit_bytes: that they may grow to, 0: none are kept."""

    folder: str | None
    entries: int
    size_bytes: int
    limit_bytes: int


def _prepared() -> _PreparedWeights:
    cache = open_cache()
    used = cache.usage() if cache else Usage(0, 0)
    return _PreparedWeights(str(cache.folder) if cache else None, used.entries, used.size_bytes, cache_limit())


def _prepared_text(prepared: _PreparedWeights) -> str:
    if prepared.folder is None:
        return f"none are kept ({LIMIT_VARIABLE}=0)"
    size, limit = bytes_text(prepared.size_bytes), bytes_text(prepared.limit_bytes)
    return f"{prepared.folder}: {size} of at most {limit} ({LIMIT_VARIABLE})"
