# SPDX-License-Identifier: MIT
"""What ARM kernels execute, without ARM hardware: instructions of tiles and whole convolutions on emulated CPUs.

Usage: executed.py FOLDER     builds into FOLDER; prints a table; fails over a limit of limits.py. CC: the cross compiler.

Instructions are counted by a QEMU plugin and are exact; they differ a little between compilers, and the limits are for
Debian 12's gcc 12.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from limits import EXECUTED, TOLERANCE, Executed

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
SAVED_REGISTERS = 8  # vector registers that a function keeps and restores: accesses to the stack that are no spill


def count_instructions(program: Path, plugin: Path, limit: Executed) -> list[tuple[str, int, dict[str, int]]]:
    """Return for each part that kernels.c runs its name, its multiply-accumulates and its instructions by kind."""
    counts = program.with_suffix(".txt")
    command = [
        "qemu-aarch64",
        "-cpu",
        limit.cpu,
        "-plugin",
        f"{plugin},out={counts}",
        str(program),
        limit.table,
        limit.precision,
    ]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        raise RuntimeError(f"{shlex.join(command)}: {completed.stderr.strip() or completed.returncode}")
    regions = [dict(re.findall(r"(\w+)=(\d+)", line)) for line in counts.read_text().splitlines() if line.startswith("region")]
    rows = [line.split("\t") for line in completed.stdout.splitlines()]
    if not rows or len(regions) != len(rows):
        raise RuntimeError(f"{program}: {len(rows)} parts ran, {len(regions)} were counted")
    return [
        (row[1], int(row[2]), {name: int(value) for name, value in region.items()})
        for row, region in zip(rows, regions, strict=True)
    ]


def check(program: Path, plugin: Path, limit: Executed) -> int:
    """Print the numbers of one tile beside its limits; return how many are over."""
    over_count = 0
    name = f"{limit.table} {limit.precision}"
    limits = (limit.tile, *limit.convolutions)
    for (kernel_part, macs, kinds), macs_limit in zip(count_instructions(program, plugin, limit), limits, strict=True):
        lines = [(f"instructions per MAC, {kernel_part}", kinds["total"] / macs, macs_limit * TOLERANCE)]
        if kernel_part == "tile":
            lines.append(("vector accesses to the stack, tile", kinds["stack"], SAVED_REGISTERS))
        for label, value, limit_value in lines:
            is_within = value <= limit_value
            over_count += not is_within
            print(
                f"{name:22s}{label:48s}{value:10.4f}  <= {limit_value:.4f}{'' if is_within else '   OVER THE LIMIT'}",
                flush=True,
            )
    return over_count


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    compiler = shlex.split(os.environ.get("CC", "aarch64-linux-gnu-gcc"))
    build = [sys.executable, str(ROOT / "tests/core.py"), str(FOLDER / "kernels.c"), str(folder / "kernels")]
    subprocess.run([*build, *compiler], check=True)
    subprocess.run(
        [
            "gcc",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fPIC",
            "-shared",
            str(FOLDER / "plugin.c"),
            "-o",
            str(folder / "plugin.so"),
        ],
        check=True,
    )
    over_count = sum(check(folder / "kernels", folder / "plugin.so", limit) for limit in EXECUTED)
    if over_count:
        print(f"executed: {over_count} over the limits of tests/counts/limits.py", file=sys.stderr)
    return over_count > 0


if __name__ == "__main__":
    sys.exit(main())
