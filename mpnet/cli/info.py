"""`mpnet info`: the machine and what mpnet makes of it."""

from __future__ import annotations

from typing import Any

from mpnet.cli.fetch import cache_folder
from mpnet.cli.options import declare
from mpnet.cli.output import console, print_json
from mpnet.kernels.environment import cpu_count, versions
from mpnet.kernels.isa import active_level, cpu_features, isa_levels, usable_levels


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
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        out.print(f"{name:<{width}}  {value}")
