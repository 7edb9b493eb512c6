# SPDX-License-Identifier: MIT
"""One file that `mprun` runs without Python: plan, weights, names, protocol. Format: docs/bundle.md."""

from __future__ import annotations

from typing import Mapping

from mpnet.export import Configuration, Exported, Option, Target
from mpnet.export.bundle.write import bundle_bytes


def _write(configuration: Configuration, flavour: str, options: Mapping[str, object]) -> Exported:
    levels = tuple(name for name in str(options.get("packed", "")).split(",") if name)
    content, details = bundle_bytes(configuration, levels, profile=not options.get("no_profile"))
    plan = configuration.plan.precision
    layers = {index: (str(plan[index]), str(plan[index]), "") for index in plan.weighted}
    return Exported({".mpnet": content}, details, layers)


TARGET = Target(
    "one file for mprun, the program without Python",
    ".mpnet",
    _write,
    options=(
        Option(
            "packed", "Put in weights packed for these ISA levels, with commas, so that mprun starts at once there.", "LEVELS"
        ),
        Option("no_profile", "Leave out what `mprun --profile` runs."),
    ),
    precisions=None,
    integer_only=("",),
)
