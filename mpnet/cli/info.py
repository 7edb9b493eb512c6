# SPDX-License-Identifier: MIT
"""`mpnet info`: the machine and what mpnet makes of it."""

from __future__ import annotations

from typing import Any

from mpnet.cli.options import declare
from mpnet.cli.output import console, print_json
from mpnet.formats.files.cache import LIMIT_VARIABLE, Usage, cache_folder, cache_limit, open_cache
from mpnet.kernels.environment import cpu_count, versions
from mpnet.kernels.isa import active_level, cpu_features, isa_levels, usable_levels
from mpnet.messages import bytes_text


@declare("mpnet info", "mpnet info --json", quiet=False)
def command(as_json: bool) -> None:
    """Show this machine: CPU features, kernel tables and which is in use, compiler, versions."""
    document: dict[str, Any] = {
        "cpu_features": list(cpu_features()),
        "isa_levels": [{"name": level.name, "usable": level.usable, "active": level.active} for level in isa_levels()],
        "isa_active": active_level(),
        "isa_usable": list(usable_levels()),
        "cores": cpu_count(),
        "versions": versions(),
        "cache": str(cache_folder()),
        "prepared": _prepared(),
    }
    if as_json:
        print_json(document)
        return
    out = console()
    levels = ", ".join(
        level["name"] + (" (in use)" if level["active"] else "" if level["usable"] else " (not on this CPU)")
        for level in document["isa_levels"]
    )
    rows = {
        "CPU": f"{document['versions']['cpu']}, {document['cores']} cores usable",
        "CPU features": " ".join(document["cpu_features"]) or "none that kernels use",
        "kernel tables": levels,
        **{name: str(document["versions"][name] or "not installed") for name in document["versions"] if name != "cpu"},
        "cache": document["cache"],
        "prepared weights": _prepared_text(document["prepared"]),
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        out.print(f"{name:<{width}}  {value}")


def _prepared() -> dict[str, Any]:
    """Return prepared weights in the cache: where, how many, how large, how large they may grow (0: none are kept)."""
    cache = open_cache()
    used = cache.usage() if cache else Usage(0, 0)
    return {
        "folder": str(cache.folder) if cache else None,
        "entries": used.entries,
        "size_bytes": used.size_bytes,
        "limit_bytes": cache_limit(),
    }


def _prepared_text(prepared: dict[str, Any]) -> str:
    if prepared["folder"] is None:
        return f"none are kept ({LIMIT_VARIABLE}=0)"
    size, limit = bytes_text(prepared["size_bytes"]), bytes_text(prepared["limit_bytes"])
    return f"{prepared['folder']}: {size} of at most {limit} ({LIMIT_VARIABLE})"
