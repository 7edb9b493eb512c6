# SPDX-License-Identifier: MIT
"""TensorFlow's operations that quantise and dequantise in one, bit-equal to its CPU kernels on x86.

fake_quant_with_min_max_vars, from the nudged range [mn, mx] of scale s, with z the code of 0 counted from the lowest:

    y = floor((clamp(x, mn, mx) - mn) / s - z + 0.5) * s

fake_quant_with_min_max_vars_per_channel multiplies by (last code - first code) / (max - min) instead of dividing by s.

quantize_and_dequantize, as v2, v3 and v4 of it do (v3 rounds halves to even only):

    y = round(clamp(x, mn, mx) * inv_scale) * scale

Every operation is one float32 rounding; denormal numbers count as zero, as in TensorFlow's threads.
Golden vectors made with TensorFlow itself (tools/make_tf_fake_quant_golden.py) hold it in place.
Source: docs/arithmetic.md, section 9.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpnet.errors import PrecisionError
from mpnet.kernels.rounding import round_to_integers
from mpnet.quantization.tensorflow import flush, flush_one

ROUND_MODES: dict[str, str] = {"HALF_TO_EVEN": "half_to_even", "HALF_UP": "half_up"}
_BITS = range(2, 17)

_f32 = np.float32
_ZERO = _f32(0)
_FLOAT_MAX = np.finfo(np.float32).max


@dataclass(frozen=True)
class Steps:
    """One range made ready: the reals that codes span, one code's real value and its reciprocal.

    zero: code of the real 0, counted from the lowest one; 0 where codes count from the real 0.
    """

    minimum: np.float32
    maximum: np.float32
    scale: np.float32
    inv_scale: np.float32
    zero: np.float32 = _ZERO

    @property
    def usable(self) -> bool:
        """Return whether there is a finite scale; an empty range has one."""
        return bool(np.isfinite([self.scale, self.inv_scale]).all() and self.scale > 0)


EMPTY = Steps(_ZERO, _ZERO, _f32(1), _ZERO)
"""Of a range that holds nothing but 0, which every real becomes."""


def fake_quant_steps(minimum: np.float32, maximum: np.float32, num_bits: int, narrow_range: bool) -> Steps:
    """Nudge the range [minimum, maximum] so that 0 is one of its codes, which moves a range without 0 to it."""
    minimum, maximum = flush_one(minimum), flush_one(maximum)
    if minimum == 0 == maximum:
        return EMPTY
    lowest, highest = _f32(int(narrow_range)), _f32(2**num_bits - 1)
    with np.errstate(all="ignore"):
        scale = flush_one(flush_one(maximum - minimum) / (highest - lowest))
        position = lowest - flush_one(minimum / scale)
        zero = min(max(_f32(round_to_integers(np.asarray(position), "half_away")), lowest), highest)
        inv_scale = flush_one((highest - lowest) / flush_one(maximum - minimum))
        return Steps(flush_one((lowest - zero) * scale), flush_one((highest - zero) * scale), scale, inv_scale, zero - lowest)


def fake_quant_integers(x: NDArray[np.float32], steps: Steps, *, channel: bool = False) -> NDArray[np.float32]:
    """Return whole numbers of steps from the real 0 for finite x. channel: as the operation per channel does."""
    shifted = flush(np.maximum(np.minimum(flush(x), steps.maximum), steps.minimum) - steps.minimum)
    position = flush(shifted * steps.inv_scale if channel else np.divide(shifted, steps.scale, dtype=_f32))
    return round_to_integers(position - steps.zero, "half_up")


def both_ways_steps(minimum: np.float32, maximum: np.float32, lowest: int, highest: int) -> Steps:
    """Return the scale of quantize_and_dequantize: the finer one that lets [minimum, maximum] fit into the codes, 0 kept."""
    minimum, maximum = flush_one(minimum), flush_one(maximum)
    low, high = _f32(lowest), _f32(highest)
    if minimum == 0 == maximum:
        return EMPTY
    with np.errstate(all="ignore"):
        from_minimum = low / minimum if low * minimum > 0 else _FLOAT_MAX
        from_maximum = high / maximum if high * maximum > 0 else _FLOAT_MAX
        if from_minimum < from_maximum:
            scale = flush_one(minimum / low)
            return Steps(minimum, flush_one(high * scale), scale, flush_one(from_minimum))
        scale = flush_one(maximum / high)
        return Steps(flush_one(low * scale), maximum, scale, flush_one(from_maximum))


def both_ways_integers(x: NDArray[np.float32], steps: Steps, rounding: str) -> NDArray[np.float32]:
    """Return whole numbers of steps from the real 0 for finite x; the sign of a zero is x's where halves go to even."""
    values = flush(x)
    values = np.where(values > steps.maximum, steps.maximum, values)
    values = np.where(values < steps.minimum, steps.minimum, values)  # keeps -0 where the minimum is 0, as np.maximum may not
    return round_to_integers(flush(values * steps.inv_scale), rounding)


def fake_quant_with_min_max_vars(
    inputs: ArrayLike, min: ArrayLike, max: ArrayLike, num_bits: int = 8, narrow_range: bool = False
) -> NDArray[np.float32]:
    """Return the reals that remain of inputs, as tf.quantization.fake_quant_with_min_max_vars does.

    inputs: finite reals, taken as float32, any shape. min, max: one number each. num_bits: 2 to 16.
    narrow_range: without the lowest code.
    Raises: PrecisionError for NaN, infinity, min > max, or a range too narrow for a scale.
    """
    values, low, high = _checked("fake_quant_with_min_max_vars", inputs, min, max, num_bits)
    if low.size != 1 or high.size != 1:
        raise PrecisionError(
            "fake_quant_with_min_max_vars: min and max are one number each; for one per channel there is "
            "fake_quant_with_min_max_vars_per_channel"
        )
    return _fake_quantised(values, low.reshape(-1)[0], high.reshape(-1)[0], num_bits, narrow_range)


def fake_quant_with_min_max_vars_per_channel(
    inputs: ArrayLike, min: ArrayLike, max: ArrayLike, num_bits: int = 8, narrow_range: bool = False
) -> NDArray[np.float32]:
    """Do as `fake_quant_with_min_max_vars` with a range for each index of the last dimension; min, max: 1-D, of its size.

    Raises: as fake_quant_with_min_max_vars.
    """
    name = "fake_quant_with_min_max_vars_per_channel"
    values, low, high = _checked(name, inputs, min, max, num_bits)
    if values.ndim < 1 or low.shape != values.shape[-1:] or high.shape != low.shape:
        raise PrecisionError(
            f"{name}: min and max are 1-D, with one number for each of the last dimension of "
            f"{values.shape}, not of shape {low.shape} and {high.shape}"
        )
    out = np.empty(values.shape, np.float32)
    for channel in range(values.shape[-1]):
        out[..., channel] = _fake_quantised(
            values[..., channel], low[channel], high[channel], num_bits, narrow_range, channel=True
        )
    return out


def quantize_and_dequantize(
    input: ArrayLike,
    input_min: ArrayLike | None = None,
    input_max: ArrayLike | None = None,
    signed_input: bool = True,
    num_bits: int = 8,
    range_given: bool = False,
    round_mode: str = "HALF_TO_EVEN",
    narrow_range: bool = False,
    axis: int | None = None,
) -> NDArray[np.float32]:
    """Do as tf.quantization.quantize_and_dequantize_v2: the raw operations v2, v4 and, with HALF_TO_EVEN, v3.

    input:     finite reals, taken as float32, any shape.
    input_min, input_max: with range_given one number each, or with axis one per slice, 1-D; else measured.
    num_bits:  2 to 16. round_mode: HALF_TO_EVEN, or without axis HALF_UP.
    Raises: PrecisionError for NaN, infinity, min > max, unknown words, or a range too narrow for a scale.
    """
    name = "quantize_and_dequantize"
    if round_mode not in ROUND_MODES:
        raise PrecisionError(f"{name}: unknown round_mode {round_mode!r}; known are {', '.join(ROUND_MODES)}")
    values = np.asarray(input, np.float32)
    if axis is not None and round_mode != "HALF_TO_EVEN":
        raise PrecisionError(f"{name}: round_mode {round_mode} does not work with an axis; use HALF_TO_EVEN")
    if axis is not None and not -values.ndim <= axis < values.ndim:
        raise PrecisionError(f"{name}: axis {axis} does not exist in an input of {values.ndim} dimensions")
    # Slices first; a whole tensor is one slice.
    slices = values[None] if axis is None else np.moveaxis(values, axis, 0)
    if not range_given:
        rows = slices.reshape(len(slices), -1)
        input_min, input_max = (rows.min(axis=1), rows.max(axis=1)) if rows.size else (np.zeros(len(rows)),) * 2
    elif input_min is None or input_max is None:
        raise PrecisionError(f"{name}: range_given asks for input_min and input_max")
    _, low, high = _checked(name, values, input_min, input_max, num_bits)
    if low.size != len(slices) or high.size != len(slices):
        raise PrecisionError(
            f"{name}: input_min and input_max hold one number for each of {len(slices)} slices, not {low.size} and {high.size}"
        )
    lowest = -(2 ** (num_bits - 1)) + narrow_range if signed_input else 0
    highest = 2 ** (num_bits - 1) - 1 if signed_input else 2**num_bits - 1
    out = np.empty(slices.shape, np.float32)
    for at, (least, most) in enumerate(zip(low.reshape(-1), high.reshape(-1), strict=True)):
        steps = both_ways_steps(least, most, lowest, highest)
        if not range_given:  # nothing is cut off then, not even what is below 0 where codes have no sign
            steps = replace(steps, minimum=-_FLOAT_MAX, maximum=_FLOAT_MAX)
        if not steps.usable:
            raise PrecisionError(f"{name}: the range [{least}, {most}] has no finite scale; widen it")
        out[at] = flush(both_ways_integers(slices[at], steps, ROUND_MODES[round_mode]) * steps.scale)
    return out[0] if axis is None else np.moveaxis(out, 0, axis)


def _fake_quantised(
    x: NDArray[np.float32], low: np.float32, high: np.float32, num_bits: int, narrow_range: bool, *, channel: bool = False
) -> NDArray[np.float32]:
    steps = fake_quant_steps(low, high, num_bits, narrow_range)
    if not steps.usable:
        raise PrecisionError(f"fake_quant_with_min_max_vars: the range [{low}, {high}] has no finite scale; widen it")
    return flush(fake_quant_integers(x, steps, channel=channel) * steps.scale)


def _checked(
    name: str, x: ArrayLike, low: ArrayLike, high: ArrayLike, num_bits: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    values, minima, maxima = (np.asarray(part, np.float32) for part in (x, low, high))
    if num_bits not in _BITS:
        raise PrecisionError(f"{name}: num_bits is {num_bits}; it must be {_BITS[0]} to {_BITS[-1]}")
    if not np.isfinite(values).all():
        raise PrecisionError(f"{name}: the input holds NaN or infinity")
    if not (np.isfinite(minima).all() and np.isfinite(maxima).all()):
        raise PrecisionError(f"{name}: min or max holds NaN or infinity")
    if minima.shape == maxima.shape and (minima > maxima).any():
        at = int(np.flatnonzero((minima > maxima).reshape(-1))[0])
        raise PrecisionError(f"{name}: min {minima.reshape(-1)[at]} > max {maxima.reshape(-1)[at]}; swap them")
    return values, minima, maxima
