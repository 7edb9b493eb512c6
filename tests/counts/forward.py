# SPDX-License-Identifier: MIT
"""Executed instructions of whole forward passes, engine and Python included, on emulated ARM CPUs.

Usage: forward.py ROOT PACKAGE PLUGIN CFG     the first three as run.sh and gate.py made them; prints a Markdown table.
What a pass executes is the difference between a process with three passes and one with a single one, halved.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

CASES = (
    ("cortex-a57", "neon", ("fp32", "fp32_winograd", "fp16", "int8", "int16", "mixed")),
    ("cortex-a76", "neon_dotprod", ("fp16_half", "fp16_half_winograd", "int8", "int16", "mixed")),
    ("max,sve=off", "neon_i8mm", ("int8", "int16", "mixed")),
)


def executed(root: Path, package: Path, plugin: Path, cpu: str, arguments: list[str]) -> tuple[int, int]:
    """Count the instructions of an emulated process that runs passes (`run` below), and the network's multiply-accumulates."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts.txt"
        command = ["qemu-aarch64", "-cpu", cpu, "-L", str(root), "-plugin", f"{plugin},out={counts}"]
        for value in (
            f"PYTHONPATH={root}/opt/site:{package}",
            "PYTHONDONTWRITEBYTECODE=1",
            "PYTHONHASHSEED=0",
            "OPENBLAS_NUM_THREADS=1",
            "OMP_NUM_THREADS=1",
        ):
            command += ["-E", value]
        command += [f"{root}/usr/bin/python3.11", __file__, "run", *arguments]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        total = re.search(r"process total=(\d+)", counts.read_text()) if process.returncode == 0 else None
        if total is None:
            raise RuntimeError(f"{' '.join(arguments)}: {process.stderr.strip()}")
        return int(total.group(1)), int(process.stdout)


def run(cfg: str, level: str, precision: str, passes: int) -> None:
    """Plan with random weights, run the passes and print, inside the emulated Python, the network's multiply-accumulates."""
    import numpy as np

    from mpnet.engine.assign import assign, assign_key
    from mpnet.engine.options import resolve_options
    from mpnet.engine.plan import build_plan
    from mpnet.engine.prepare import Prepared
    from mpnet.engine.session import Session
    from mpnet.formats.cfg.read import read_cfg
    from mpnet.kernels.isa import kernels
    from mpnet.model.weights import random_weights
    from mpnet.speed.bench import bench_key

    network = read_cfg(cfg)
    mixed = {"first": "fp16", "heads": "fp16"}  # as docs/results/arm.md counts; `mpnet bench` leaves the first layer in int8
    key = assign(network, "int8", mixed).key if precision == "mixed" else bench_key(network, precision)
    options = resolve_options(network)
    prepared = Prepared(network, random_weights(network), kernels(level), batch_norm=options.batch_norm)
    session = Session(prepared, build_plan(network, assign_key(network, key), options), 1)
    image = np.random.Generator(np.random.PCG64(0)).random((1, *network.in_shape), np.float32)
    for _ in range(passes):
        session.forward(image, copy=False)
    print(network.macs)


def main() -> int:
    if sys.argv[1] == "run":
        run(*sys.argv[2:5], int(sys.argv[5]))  # type: ignore[call-arg]
        return 0
    root, package, plugin, cfg = (Path(path).resolve() for path in sys.argv[1:5])
    print("| level | precision | instructions of a pass, millions | per MAC |\n|---|---|---:|---:|")
    for cpu, level, precisions in CASES:
        for precision in precisions:
            once, macs = executed(root, package, plugin, cpu, [str(cfg), level, precision, "1"])
            thrice, _ = executed(root, package, plugin, cpu, [str(cfg), level, precision, "3"])
            print(f"| `{level}` | {precision} | {(thrice - once) / 2e6:.0f} | {(thrice - once) / 2 / macs:.4f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
