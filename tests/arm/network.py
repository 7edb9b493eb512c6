"""Prints digests of a whole network's head tensors, one line per precision plan: the same lines on every CPU.

Usage: network.py [LEVEL]     with a level (scalar, avx2, neon, ...) only that kernel table runs, else all usable ones.
Run through the real package: cfg and weights are written and read, the engine plans, quantises and forwards.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

import numpy as np

from mpnet.api import load_network
from mpnet.kernels.isa import usable_levels
from tests.networks import SIDE, write_network

PLANS: dict[str, dict[str | int, str]] = {
    "fp32": {}, "fp32_winograd": {}, "fp16": {}, "fp16_half": {}, "int8": {},
    "mixed": {"all": "int8", "first": "fp16", "heads": "fp32"},
}


def digests(level: str, folder: Path) -> list[str]:
    """One line per plan."""
    x = np.random.default_rng(7).random((2, SIDE, SIDE, 3), dtype=np.float32)
    lines = []
    for name, layers in PLANS.items():
        network = load_network(folder / "net.cfg", folder / "net.weights", layers=layers or {"conv": name},
                               isa=level, threads=2)
        heads = network.forward(x)
        digest = hashlib.sha256(b"".join(head.tobytes() for head in heads)).hexdigest()
        lines.append(f"{name:14s} {digest}")
    return lines


def main() -> int:
    wanted = sys.argv[1:] or list(usable_levels())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_network(folder, seed=1)
        results = {level: digests(level, folder) for level in wanted}
    first = results[wanted[0]]
    print("\n".join(first))
    for level, lines in results.items():
        if lines != first:
            print(f"level {level} differs:\n" + "\n".join(lines), file=sys.stderr)
            return 1
    print(f"levels that agree: {' '.join(wanted)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
