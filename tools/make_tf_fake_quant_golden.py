# SPDX-License-Identifier: MIT
"""Write tests/golden/tf_fake_quant.npz: what TensorFlow's fake quantisation answers.

The operations are fake_quant_with_min_max_vars, its form per channel, and quantize_and_dequantize (v2, v3, v4).

    pip install tensorflow-cpu
    python tools/make_tf_fake_quant_golden.py

Inputs are shaped (SLICES, size), one after the other in x; size[i] is input i's, ranges[i] (SLICES, 2) its ranges: row 0
where one range holds for all. Answers lie one after the other in the order of these loops, shaped as the input:

    fake_whole    inputs x (num_bits, narrow_range) of fake_cases       fake_channel   the same, a range for each slice
    both_whole    inputs x rows of both_cases                           both_slices    rows of round_mode 0, a range for each
    both_cases    (num_bits, narrow_range, signed_input, range_given, round_mode)
Whole tensors: v2, v4 and, where halves go to even, v3, which must agree; slices: v3, the only one that takes them on CPUs.
"""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

# oneDNN's kernels answer otherwise on CPUs with VNNI; TensorFlow reads this when it is imported.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import numpy as np
import tensorflow as tf
from golden import write_arrays

SEED = 21
GOLDEN_FILE = Path(__file__).resolve().parent.parent / "tests" / "golden" / "tf_fake_quant.npz"
SLICES = 3
# Around the widths of vector registers, for the bodies and the tails of loops.
SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33]
ROUND_MODES = ["HALF_TO_EVEN", "HALF_UP"]
FAKE = [(bits, narrow) for bits in (2, 8, 16) for narrow in (0, 1)]
ROUND_TRIP_CASES = [case for case in product((4, 8, 16), (0, 1), (0, 1), (0, 1), (0, 1)) if case[2] or not case[1]]


def ranges(rng: np.random.Generator) -> np.ndarray:
    """Draw ranges (inputs, SLICES, 2): ordinary, one-sided, tiny, huge, without 0 and symmetric ones."""
    fixed = [
        (-0.61, 5.9),
        (-1, 1),
        (0, 6),
        (-6, 0),
        (0, 255),
        (-128, 127),
        (-1e-4, 2e-4),
        (-12.75, 12.75),
        (1, 2),
        (-2, -1),
        (-1e-30, 1e-30),
        (-1e30, 1e30),
        (0, 1e-3),
        (-0.0049913866, 0.0077833906),
        (-127, 127),
        (-127.5, 127.5),
    ]
    random = np.sort(10.0 ** rng.uniform(-6, 6, (56, 1)) * rng.uniform(-1, 1, (56, 2)), axis=1)
    return np.concatenate([fixed, random]).astype(np.float32).reshape(-1, SLICES, 2)


def values(rng: np.random.Generator, low: float, high: float, count: int) -> np.ndarray:
    """Ties of several step sizes, their neighbours, ends, outside, zeros, denormals and anything between."""
    span = np.float64(high) - np.float64(low)
    steps = np.array([span / codes for codes in (3, 15, 254, 255, 65535)] + [max(abs(low), abs(high)) / 127])
    ties = ((np.floor(rng.uniform(-300, 300, (6, 2 * count))) + 0.5) * steps[:, None]).ravel().astype(np.float32)
    pool = np.concatenate(
        [
            ties,
            np.nextafter(ties, np.float32(np.inf)),
            np.nextafter(ties, np.float32(-np.inf)),
            rng.uniform(low - 0.2 * span, high + 0.2 * span, 12 * count).astype(np.float32),
            np.float32([low, high, 0.0, -0.0, 1e-40, -1e-40, 1.5 * low, 1.5 * high]),
        ]
    )
    return rng.choice(pool[np.isfinite(pool)], count)


def round_trip(x: np.ndarray, low: np.float32, high: np.float32, case: tuple[int, ...]) -> np.ndarray:
    """Return what v2 answers for a whole tensor, and v4, and v3 where it can."""
    bits, narrow, signed, has_range, mode = case
    arguments = {
        "input": x,
        "input_min": low,
        "input_max": high,
        "signed_input": bool(signed),
        "range_given": bool(has_range),
        "narrow_range": bool(narrow),
        "num_bits": bits,
    }
    result = tf.raw_ops.QuantizeAndDequantizeV2(round_mode=ROUND_MODES[mode], **arguments).numpy()
    newer_operations = [tf.raw_ops.QuantizeAndDequantizeV4(round_mode=ROUND_MODES[mode], **arguments)]
    if mode == 0:
        newer_operations.append(tf.raw_ops.QuantizeAndDequantizeV3(**arguments))
    for tensor in newer_operations:
        assert np.array_equal(result.view(np.uint32), tensor.numpy().view(np.uint32)), case
    return result


def round_trip_slices(x: np.ndarray, low: np.ndarray, high: np.ndarray, case: tuple[int, ...]) -> np.ndarray:
    """Return what v3 answers for slices; v2 and v4 take none on CPUs."""
    bits, narrow, signed, has_range, _ = case
    return tf.raw_ops.QuantizeAndDequantizeV3(
        input=x,
        input_min=low,
        input_max=high,
        signed_input=bool(signed),
        num_bits=bits,
        range_given=bool(has_range),
        narrow_range=bool(narrow),
        axis=0,
    ).numpy()


def main() -> None:
    """Run the command."""
    rng = np.random.default_rng(SEED)
    rows = ranges(rng)
    sizes = [SIZES[i % len(SIZES)] for i in range(len(rows))]
    inputs = [np.stack([values(rng, *pair, size) for pair in group]) for group, size in zip(rows, sizes, strict=True)]
    answers: dict[str, list[np.ndarray]] = {"fake_whole": [], "fake_channel": [], "both_whole": [], "both_slices": []}
    for x, group in zip(inputs, rows, strict=True):
        low, high = group.T
        for bits, narrow in FAKE:
            arguments = {"num_bits": bits, "narrow_range": bool(narrow)}
            per_tensor = tf.quantization.fake_quant_with_min_max_vars(x, low[0], high[0], **arguments)
            per_channel = tf.quantization.fake_quant_with_min_max_vars_per_channel(x.T, low, high, **arguments)
            answers["fake_whole"].append(per_tensor.numpy())
            answers["fake_channel"].append(per_channel.numpy().T)
        for case in ROUND_TRIP_CASES:
            answers["both_whole"].append(round_trip(x, low[0], high[0], case))
            if case[-1] == 0:
                answers["both_slices"].append(round_trip_slices(x, low, high, case))
    arrays = {
        "x": np.concatenate([x.ravel() for x in inputs]),
        "size": np.array(sizes, np.int16),
        "ranges": rows,
        "fake_cases": np.array(FAKE, np.int8),
        "both_cases": np.array(ROUND_TRIP_CASES, np.int8),
        "round_modes": np.array(ROUND_MODES),
        "tensorflow": np.array(tf.__version__),
        **{name: np.concatenate([block.ravel() for block in blocks]) for name, blocks in answers.items()},
    }
    write_arrays(GOLDEN_FILE, arrays)
    print(
        f"{GOLDEN_FILE}: {sum(map(len, answers.values()))} cases, "
        f"{sum(a.size for n, a in arrays.items() if n in answers)} values, "
        f"{GOLDEN_FILE.stat().st_size} bytes, TensorFlow {tf.__version__}"
    )


if __name__ == "__main__":
    main()
