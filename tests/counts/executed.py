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

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SAVED = 8  # vector registers that a function keeps and restores: accesses to the stack that are no spill


def counted(program: Path, plugin: Path, limit: Executed) -> list[tuple[str, int, dict[str, int]]]:
    """Of each part that kernels.c runs: its name, its multiply-accumulates, the instructions by kind."""
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
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"{shlex.join(command)}: {run.stderr.strip() or run.returncode}")
    regions = [dict(re.findall(r"(\w+)=(\d+)", line)) for line in counts.read_text().splitlines() if line.startswith("region")]
    parts = [line.split("\t") for line in run.stdout.splitlines()]
    if not parts or len(regions) != len(parts):
        raise RuntimeError(f"{program}: {len(parts)} parts ran, {len(regions)} were counted")
    return [
        (part[1], int(part[2]), {name: int(value) for name, value in region.items()})
        for part, region in zip(parts, regions, strict=True)
    ]


def check(program: Path, plugin: Path, limit: Executed) -> int:
    """Prints the numbers of one tile beside its limits; returns how many are over."""
    over = 0
    name = f"{limit.table} {limit.precision}"
    most = (limit.tile, *limit.convolutions)
    for (part, macs, kinds), measured in zip(counted(program, plugin, limit), most, strict=True):
        lines = [(f"instructions per MAC, {part}", kinds["total"] / macs, measured * TOLERANCE)]
        if part == "tile":
            lines.append(("vector accesses to the stack, tile", kinds["stack"], SAVED))
        for what, value, limit_value in lines:
            good = value <= limit_value
            over += not good
            print(f"{name:22s}{what:48s}{value:10.4f}  <= {limit_value:.4f}{'' if good else '   OVER THE LIMIT'}", flush=True)
    return over


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    compiler = shlex.split(os.environ.get("CC", "aarch64-linux-gnu-gcc"))
    build = [sys.executable, str(ROOT / "tests/core.py"), str(HERE / "kernels.c"), str(folder / "kernels")]
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
            str(HERE / "plugin.c"),
            "-o",
            str(folder / "plugin.so"),
        ],
        check=True,
    )
    over = sum(check(folder / "kernels", folder / "plugin.so", limit) for limit in EXECUTED)
    if over:
        print(f"executed: {over} over the limits of tests/counts/limits.py", file=sys.stderr)
    return over > 0


if __name__ == "__main__":
    sys.exit(main())
