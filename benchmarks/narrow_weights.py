# SPDX-License-Identifier: MIT
"""Convolutions with weights below eight bits against int8, layer by layer, in turns: one thread, random weights and inputs.

Usage: narrow_weights.py CFG [--level NAME] [--rounds N] [--layers 7,12] [--evict]     convolutions counted from 1
Prints Markdown. --evict: before each call 256 MiB are written, so that weights come from memory. Kernels alone, without what
stands between layers.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Callable

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.folding import conv_shape
from mpnet.formats.cfg.read import read_cfg
from mpnet.kernels.interface import ConvShape, TensorQuant
from mpnet.kernels.isa import kernels
from mpnet.model.precision import PRECISIONS, precision
from mpnet.model.quantization import GROUP
from mpnet.speed.clock import once

NARROW = [row for row in PRECISIONS.values() if row.is_narrow]
COLUMNS = [("int8", False), *((row.name, grouped) for grouped in (False, True) for row in NARROW)]


def call(level: str | None, shape: ConvShape, name: str, grouped: bool) -> Callable[[], None]:
    """One convolution, to be called again and again."""
    rng, row, table = np.random.default_rng(0), precision(name), kernels(level)
    largest = row.largest_code
    size = (shape.out_channels, shape.in_channels // shape.groups, shape.size, shape.size)
    # A third of the range: sums like those of trained layers, for which Winograd in whole numbers is proven.
    weights = np.clip(np.rint(rng.standard_normal(size) * (largest / 3)), -largest, largest).astype(np.int8)
    if grouped:
        steps = rng.integers(1, 2 ** (8 - row.weight_bits) + 1, (size[0], -(-size[1] // GROUP), *size[2:]))
        weights *= np.repeat(steps, GROUP, axis=1)[:, : size[1]].astype(np.int8)
    packed = table.pack_conv(shape, row, weights)
    x = rng.integers(-128, 128, (1, shape.in_h, shape.in_w, shape.in_channels)).astype(np.int8)
    out = np.empty((1, shape.out_h, shape.out_w, shape.out_channels), np.int8)
    quant = TensorQuant(np.array([0.02], np.float32), np.array([-3], np.int32), np.zeros(1, np.float32))
    bias, scale = np.zeros(shape.out_channels, np.float32), np.full(shape.out_channels, 0.01, np.float32)
    return lambda: table.conv(
        packed, x, out, bias=bias, activation="leaky", weight_scale=scale, in_quant=quant, out_quant=quant
    )


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cfg", type=Path)
    parser.add_argument("--level")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--layers", type=lambda text: {int(number) for number in text.split(",")})
    parser.add_argument("--evict", action="store_true")
    options = parser.parse_args()
    evicted = np.zeros(2**28 if options.evict else 0, np.uint8)
    names = " | ".join(name + (" in groups" if grouped else "") for name, grouped in COLUMNS[1:])
    print(f"| {kernels(options.level).name} | int8, ms | {names} |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    total = np.zeros((len(COLUMNS), options.rounds))
    for number, layer in enumerate(read_cfg(options.cfg).convolutions, 1):
        if options.layers and number not in options.layers:
            continue
        shape = conv_shape(layer)
        calls = [call(options.level, shape, *column) for column in COLUMNS]
        times = np.empty((len(calls), options.rounds))
        for run in calls:
            run()
        for turn in range(options.rounds):
            for index, run in enumerate(calls):
                evicted += 1
                times[index, turn] = once(run)
        total += times
        name = f"conv-{number}: {shape.in_channels} to {shape.out_channels}, {shape.size}x{shape.size}, at {shape.in_w}"
        print(line(name, times), flush=True)
    print(line("together", total))
    return 0


def line(name: str, times: NDArray[np.float64]) -> str:
    """Least and median of int8, and of the others as a share of these."""
    minimum, median = times.min(1), np.median(times, axis=1)
    shares = [f"{a:.2f} / {b:.2f}" for a, b in zip(minimum[1:] / minimum[0], median[1:] / median[0], strict=True)]
    return f"| {name} | {minimum[0]:.3f} / {median[0]:.3f} | {' | '.join(shares)} |"


if __name__ == "__main__":
    raise SystemExit(main())
