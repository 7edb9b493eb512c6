# SPDX-License-Identifier: MIT
"""Prints digests of a whole network's head tensors, one line per precision plan, and of a small network per kind of layer: the
same lines on every CPU.

Usage: network.py [LEVEL]     with a level (scalar, avx2, neon, ...) only that kernel table runs, else all usable vector ones.
Run through the real package: the demo's trained network is read, planned, quantised and forwarded on one of its scenes.
"""

from __future__ import annotations

import hashlib
import runpy
import sys
from pathlib import Path

import numpy as np

from mpnet.api import load_network
from mpnet.demo.model import model_files
from mpnet.demo.scenes import scene
from mpnet.engine.assign import assign
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels, usable_levels
from mpnet.model.weights import random_weights

PLANS: dict[str, dict[str | int, str]] = {
    "fp32": {},
    "fp32_winograd": {},
    "fp16": {},
    "fp16_half": {},
    "fp16_half_winograd": {},
    "bf16": {},
    "int8": {},
    "mixed": {"all": "int8", "first": "fp16", "heads": "fp32"},
}


def digests(level: str) -> list[str]:
    """Return one line per plan."""
    image, _ = scene("val", 0)
    x = (image[None].astype(np.float32) / np.float32(255)).astype(np.float32)
    lines = []
    for name, layers in PLANS.items():
        files = model_files()
        network = load_network(files.cfg, files.weights, layers=layers or {"conv": name}, isa=level, threads=2)
        heads = network.forward(x)
        digest = hashlib.sha256(b"".join(head.tobytes() for head in heads)).hexdigest()
        lines.append(f"{name:14s} {digest}")
    return lines


def family_digests(level: str) -> list[str]:
    """Return one line per kind of layer of the Darknet family: fp32, fp16, bf16 and int8 of a small network together."""
    family = runpy.run_path(str(Path(__file__).parents[1] / "engine" / "family.py"))
    x = np.random.Generator(np.random.PCG64(3)).random((2, 10, 14, 3), np.float32)
    lines = []
    for name in family["LAYERS"]:
        network = parse_cfg(family["family_cfg"](name))
        prepared = Prepared(network, random_weights(network, 4), kernels(level))
        digest = hashlib.sha256()
        for precision in ("fp32", "fp16", "bf16", "int8"):
            for tensor in Session(prepared, build_plan(network, assign(network, precision)), 2).forward(x):
                digest.update(tensor.tobytes())
        lines.append(f"{name:20s} {digest.hexdigest()}")
    return lines


def main() -> int:
    levels = sys.argv[1:] or [level for level in usable_levels() if level != "scalar"] or ["scalar"]
    results = {level: digests(level) + family_digests(level) for level in levels}
    reference_lines = results[levels[0]]
    print("\n".join(reference_lines))
    for level, lines in results.items():
        if lines != reference_lines:
            print(f"level {level} differs:\n" + "\n".join(lines), file=sys.stderr)
            return 1
    print(f"levels that agree: {' '.join(levels)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
