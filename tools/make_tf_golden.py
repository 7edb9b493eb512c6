# SPDX-License-Identifier: MIT
"""Write tests/golden/tf_quantization.npz: what TensorFlow's own CPU kernels answer.

    pip install tensorflow-cpu
    python tools/make_tf_golden.py

The file holds its cases as tables, so the tests need nothing from here:

    x, x_start            float32 values, case input i is x[x_start[i]:x_start[i+1]], shaped x_shape[i]
    ranges, range_start   float32 (min, max) rows of input i: one, or one per slice of x_axis[i] (-1: no axis)
    quantize_cases        rows (input, type, mode, round_mode, narrow_range, ensure_minimum_range), indices into names
    codes_<type>          the codes of all cases of that type, one after the other
    output_ranges         (min, max) rows as returned, one after the other
    dequantize_cases      rows (type, mode, narrow_range); ranges in dequantize_ranges
    dequantize_<type>     the codes that every dequantize case of that type gets
    reals_<type>          what TensorFlow makes of them, (cases of the type, codes)
    slice_reals_<type>    the same codes in six slices with the ranges slice_ranges, (MIN_COMBINED and SCALED, 6, codes)
Runs on x86: TensorFlow's ARM build computes quint8 MIN_FIRST otherwise.
"""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path

import numpy as np
import tensorflow as tf
from golden import write_arrays

SEED = 20
GOLDEN_FILE = Path(__file__).resolve().parent.parent / "tests" / "golden" / "tf_quantization.npz"
TYPES = ["qint8", "quint8", "qint16", "quint16", "qint32"]
MODES = ["MIN_COMBINED", "MIN_FIRST", "SCALED"]
ROUND_MODES = ["HALF_AWAY_FROM_ZERO", "HALF_TO_EVEN"]
MINIMUM_RANGES = [0.01, 0.0, 0.3]
# mode, round_mode, narrow_range, as indices; narrow_range matters in SCALED only.
OPTIONS = [(0, 0, 0), (1, 0, 0), (1, 0, 1), *((2, r, n) for r in (0, 1) for n in (0, 1))]
# Around the widths of vector registers, for the bodies and the tails of loops.
SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 63, 64, 65]


def ranges(rng: np.random.Generator) -> list[tuple[float, float]]:
    """Whole, tiny, huge, one-sided, equal and empty ranges."""
    fixed = [
        (-0.61, 5.9),
        (-1, 1),
        (-128, 127),
        (-127, 127),
        (0, 255),
        (-128, 0),
        (0, 1),
        (-1, 0),
        (0, 0),
        (3, 3),
        (-3, -3),
        (0.003, 0.003),
        (-0.003, 0.003),
        (-1e-4, 2e-4),
        (1, 2),
        (-2, -1),
        (-2, -1.999),
        (100, 100.001),
        (-12.75, 12.75),
        (-6, 6),
        (0, 6),
        (-0.1, 6.3),
        (-32768, 32767),
        (0, 65535),
        (-2147483648, 2147483648),
        (-1e30, 1e30),
        (0, 3e37),
        (-1e37, 5),
        (-1e-30, 1e-30),
        (0, 1e-35),
        (-0.01, 0),
        (-1e-20, 1e10),
        (0.5, 300.25),
    ]
    magnitudes = 10.0 ** rng.uniform(-7, 7, (60, 1))
    random = np.sort(magnitudes * rng.uniform(-1, 1, (60, 2)), axis=1)
    return [*fixed, *map(tuple, random.tolist())]


def values(rng: np.random.Generator, low: float, high: float, count: int) -> np.ndarray:
    """Ties of several step sizes, their neighbours, ends, outside, zeros and anything between."""
    lowest, highest = np.float32(min(low, 0.0)), np.float32(max(high, 0.0))
    span = np.float64(highest) - np.float64(lowest) or 1.0
    step = span / rng.choice([255.0, 254.0, 65535.0, 256.0])
    largest = max(-lowest, highest) / rng.choice([127.0, 128.0, 255.0])
    ties = (np.floor(rng.uniform(low, high, 3 * count) / step) + 0.5) * step
    middles = lowest + (np.floor(rng.uniform(0, 255, 2 * count)) + 0.5) * (span / 255.0)
    scaled = (np.floor(rng.uniform(-128, 128, 2 * count)) + 0.5) * largest
    exact = np.concatenate([ties, middles, scaled]).astype(np.float32)
    pool = np.concatenate(
        [
            exact,
            np.nextafter(exact, np.float32(np.inf)),
            np.nextafter(exact, np.float32(-np.inf)),
            rng.uniform(lowest - 0.1 * span, highest + 0.1 * span, 4 * count).astype(np.float32),
            np.float32([low, high, 0.0, -0.0, 1e-40, 0.49999997, 0.5, 2.5, -2.5, lowest * 1.5, highest * 1.5]),
        ]
    )
    return rng.choice(pool[np.isfinite(pool)], count)


def inputs(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """(x, (min, max) rows, axis) of every input."""
    cases = []
    for i, (low, high) in enumerate(ranges(rng)):
        for size in (SIZES[i % len(SIZES)], int(rng.integers(1, 20))):
            cases.append((values(rng, low, high, size), np.float32([[low, high]]), -1))
    for shape, axis in [
        ((2, 3, 4), 0),
        ((2, 3, 4), 1),
        ((2, 3, 4), 2),
        ((5, 7), 0),
        ((5, 7), 1),
        ((3, 1, 2, 4), 3),
        ((1, 9), 0),
        ((2, 16, 17), 1),
    ]:
        for _ in range(2):
            rows = np.sort(10.0 ** rng.uniform(-3, 3, (shape[axis], 1)) * rng.uniform(-1, 1, (shape[axis], 2)), axis=1)
            slices = [values(rng, low, high, int(np.prod(shape)) // shape[axis]) for low, high in rows]
            slice_shape = [s for i, s in enumerate(shape) if i != axis]
            x = np.stack([s.reshape(slice_shape) for s in slices], axis=axis)
            cases.append((x.astype(np.float32), rows.astype(np.float32), axis))
    return cases


def quantize_all(inputs: list[tuple[np.ndarray, np.ndarray, int]]) -> dict[str, np.ndarray]:
    """Run tf.raw_ops.QuantizeV2 on every input with every option."""
    cases, outputs = [], []
    codes: dict[str, list[np.ndarray]] = {name: [] for name in TYPES}
    for i, (x, rows, axis) in enumerate(inputs):
        for t, (m, r, n), e in product(range(len(TYPES)), OPTIONS, range(len(MINIMUM_RANGES))):
            if axis >= 0 and MODES[m] == "MIN_FIRST" and x.shape[axis] != 1:
                continue  # not implemented there
            if e == 1 and (max(rows[:, 1].min(), 0) - min(rows[:, 0].max(), 0)) < 1e-25:
                continue  # an infinite scale: the answer depends on the position in the vector register
            low, high = (rows[0, 0], rows[0, 1]) if axis < 0 else (rows[:, 0], rows[:, 1])
            q, minimum, maximum = tf.raw_ops.QuantizeV2(
                input=x,
                min_range=low,
                max_range=high,
                T=getattr(tf, TYPES[t]),
                mode=MODES[m],
                round_mode=ROUND_MODES[r],
                narrow_range=bool(n),
                axis=axis,
                ensure_minimum_range=MINIMUM_RANGES[e],
            )
            cases.append((i, t, m, r, n, e))
            codes[TYPES[t]].append(q.numpy().ravel())
            outputs.append(np.stack([minimum.numpy().ravel(), maximum.numpy().ravel()], axis=1))
    return {
        "quantize_cases": np.array(cases, np.int16),
        "output_ranges": np.concatenate(outputs),
        **{f"codes_{name}": np.concatenate(blocks) for name, blocks in codes.items()},
    }


def dequantize_all(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Run tf.raw_ops.Dequantize on extreme and random codes over many ranges."""
    arrays: dict[str, np.ndarray] = {}
    cases, rows = [], []
    spans = [(low, high) for low, high in ranges(rng) if low <= 0 <= high and high - low < 1e36][:40]
    slices = (np.float32([s[0] for s in spans[:6]]), np.float32([s[1] for s in spans[:6]]))
    for t, name in enumerate(TYPES):
        storage = np.dtype(name[1:])
        info = np.iinfo(storage)
        codes = np.concatenate(
            [[info.min, info.min + 1, info.max, info.max - 1, 0, 1], rng.integers(info.min, info.max, 28, endpoint=True)]
        ).astype(storage)
        as_type = tf.bitcast(codes, getattr(tf, name))  # a NumPy array has no quantised type
        reals = []
        for m, n in ((0, 0), (1, 0), (2, 0), (2, 1)):
            for low, high in spans:
                real = tf.raw_ops.Dequantize(
                    input=as_type,
                    min_range=np.float32(low),
                    max_range=np.float32(high),
                    mode=MODES[m],
                    narrow_range=bool(n),
                    axis=-1,
                )
                cases.append((t, m, n))
                rows.append((low, high))
                reals.append(real.numpy())
        arrays[f"dequantize_{name}"] = codes
        arrays[f"reals_{name}"] = np.array(reals)
        arrays[f"slice_reals_{name}"] = np.stack(
            [
                tf.raw_ops.Dequantize(
                    input=tf.stack([as_type] * 6),
                    min_range=slices[0],
                    max_range=slices[1],
                    mode=MODES[m],
                    narrow_range=False,
                    axis=0,
                ).numpy()
                for m in (0, 2)
            ]
        )
    return {
        "dequantize_cases": np.array(cases, np.int16),
        "dequantize_ranges": np.array(rows, np.float32),
        "slice_ranges": np.stack(slices, axis=1),
        **arrays,
    }


def main() -> None:
    """Run the command."""
    rng = np.random.default_rng(SEED)
    cases = inputs(rng)
    shapes = np.zeros((len(cases), 4), np.int16)
    for i, (x, _, _) in enumerate(cases):
        shapes[i, : x.ndim] = x.shape
    arrays = {
        "x": np.concatenate([x.ravel() for x, _, _ in cases]),
        "x_start": np.cumsum([0, *(x.size for x, _, _ in cases)]).astype(np.int32),
        "x_shape": shapes,
        "x_axis": np.array([axis for _, _, axis in cases], np.int8),
        "ranges": np.concatenate([rows for _, rows, _ in cases]),
        "range_start": np.cumsum([0, *(len(rows) for _, rows, _ in cases)]).astype(np.int32),
        "types": np.array(TYPES),
        "modes": np.array(MODES),
        "round_modes": np.array(ROUND_MODES),
        "minimum_ranges": np.array(MINIMUM_RANGES),
        "tensorflow": np.array(tf.__version__),
        **quantize_all(cases),
        **dequantize_all(rng),
    }
    write_arrays(GOLDEN_FILE, arrays)
    print(
        f"{GOLDEN_FILE}: {len(arrays['quantize_cases'])} quantize cases, {len(arrays['dequantize_cases'])} dequantize cases, "
        f"{GOLDEN_FILE.stat().st_size} bytes, TensorFlow {tf.__version__}"
    )
    assert all(a <= b for a, b in pairwise(arrays["x_start"]))


if __name__ == "__main__":
    main()
