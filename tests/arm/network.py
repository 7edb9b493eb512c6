"""Prints digests of a whole network's head tensors, one line per precision plan: the same lines on every CPU.

Usage: network.py [LEVEL]     with a level (scalar, avx2, neon, ...) only that kernel table runs, else all usable vector ones.
Run through the real package: the demo's trained network is read, planned, quantised and forwarded on one of its scenes.
"""

from __future__ import annotations

import hashlib
import sys

import numpy as np

from mpnet.api import load_network
from mpnet.demo.model import model_files
from mpnet.demo.scenes import scene
from mpnet.kernels.isa import usable_levels

PLANS: dict[str, dict[str | int, str]] = {
    "fp32": {}, "fp32_winograd": {}, "fp16": {}, "fp16_half": {}, "int8": {},
    "mixed": {"all": "int8", "first": "fp16", "heads": "fp32"},
}


def digests(level: str) -> list[str]:
    """One line per plan."""
    picture, _ = scene("val", 0)
    x = (picture[None].astype(np.float32) / np.float32(255)).astype(np.float32)
    lines = []
    for name, layers in PLANS.items():
        files = model_files()
        network = load_network(files.cfg, files.weights, layers=layers or {"conv": name}, isa=level, threads=2)
        heads = network.forward(x)
        digest = hashlib.sha256(b"".join(head.tobytes() for head in heads)).hexdigest()
        lines.append(f"{name:14s} {digest}")
    return lines


def main() -> int:
    wanted = sys.argv[1:] or [level for level in usable_levels() if level != "scalar"] or ["scalar"]
    results = {level: digests(level) for level in wanted}
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
