# SPDX-License-Identifier: MIT
"""Weights as codes: per tensor or per output channel, min-max, MSE-optimal or power of two.

real = float(q) * scale. Per element, each operation one float32 rounding: q = round(clamp(w * (1 / scale), -L, L)), with
L = 127 for eight bits, 2^(bits - 1) - 1 for others. TensorFlow's methods are its operations from -max|w| to max|w|, without
the lowest code (mpnet.quantization.fake_quant).
In groups every 32 input channels of a filter's tap have a step, a small multiple of the filter's scale. A code of b bits times
a multiplier of 8 - b bits is a whole number of eight bits: weights in groups are int8 weights with one scale per output
channel, whatever multiplies them, and only memory knows that they take fewer bits (csrc/conv/groups.h);
docs/decisions/0010-groups-of-32-channels.md says why.
Searches add squared errors in float64 one after the other per channel, so the chosen scale is the same on every CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import RealArray
from mpnet.errors import PrecisionError
from mpnet.kernels.rounding import round_to_integers
from mpnet.model.quantization import GROUP, LEARNT, PER_GROUP, SCHEME_ROUNDINGS, WEIGHT_GRANULARITIES, WEIGHT_METHODS, WEIGHTS

_f32 = np.float32
# Candidates of the MSE search: the largest magnitude times 100 %, 99 %, ... 30 %.
_SHRINK = np.arange(100, 29, -1, dtype=np.float32) / np.float32(100)
# The reference program's multipliers are 2^-16 .. 2^15, so its scales are 2^16 .. 2^-15.
_EXPONENTS = range(16, -16, -1)
# Of the largest step that a filter's groups want, in parts of the largest multiplier.
_GROUP_SCALES = np.arange(100, 69, -2, dtype=np.float32) / np.float32(100)
# Weights are searched in pieces of this many, to bound memory.
_PIECE = 1 << 20


@dataclass(frozen=True)
class WeightScheme:
    """The quantisation of weights.

    granularity: per_channel (one scale per output channel), per_tensor, or per_group (below), with
                 fewer than eight bits.
    method:      min_max: scale = max|w| / L; mse: the scale of 71 candidates (100 % .. 30 % of max|w|) with the least
                 squared error; power_of_two: the scale 2^-15 .. 2^16 with the least squared error;
                 fake_quant_with_min_max_vars, quantize_and_dequantize: as that operation of TensorFlow's does.
    rounding:    half_to_even, half_away, truncate or half_up, as far as the method does; None: its own. learnt: by
                 mpnet.quantization.learnt_rounding, not here.
    bits:        of a code, 2 to 8.
    Raises: PrecisionError for an unknown word, or one that does not fit the method.
    """

    granularity: str = "per_channel"
    method: str = "min_max"
    rounding: str | None = None
    bits: int = 8

    @property
    def largest(self) -> int:
        """Return the largest magnitude of a code."""
        return (1 << (self.bits - 1)) - 1

    def in_groups(self, channels: int) -> bool:
        """Return whether filters that read so many channels have groups: with one channel every weight would be its own."""
        return self.granularity == PER_GROUP and channels > 1

    def __post_init__(self) -> None:
        roundings = WEIGHTS[self.method].roundings if self.method in WEIGHTS else SCHEME_ROUNDINGS
        if self.rounding is None:
            object.__setattr__(self, "rounding", roundings[0])
        for what, value, known in (
            ("granularity", self.granularity, WEIGHT_GRANULARITIES if self.bits == 8 else (*WEIGHT_GRANULARITIES, PER_GROUP)),
            ("method", self.method, WEIGHT_METHODS),
            ("rounding", self.rounding, (*SCHEME_ROUNDINGS, LEARNT)),
        ):
            if value not in known:
                raise PrecisionError(f"weights: unknown {what} {value!r}; known are {', '.join(known)}")
        if self.rounding not in (*roundings, LEARNT):
            raise PrecisionError(f"weights: method {self.method} does not round {self.rounding}; use {' or '.join(roundings)}")
        if self.rounding == LEARNT and (self.granularity == "per_tensor" or WEIGHTS[self.method].tensorflow):
            what = self.granularity if self.granularity == "per_tensor" else f"method {self.method}"
            raise PrecisionError(f"weights: rounding {LEARNT} has no {what}; use per_channel with min_max, mse or power_of_two")


def quantize_weights(w: RealArray, scheme: WeightScheme) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return (codes, scales) of a layer's weights.

    w:      (out_channels, ...), finite; taken as float32.
    Result: int8 of w's shape, in [-scheme.largest, scheme.largest], and float32 (out_channels,), one value when per tensor.
    Raises: PrecisionError if w is empty, holds NaN or infinity.
    """
    values = np.asarray(w, np.float32)
    if values.ndim < 1 or values.size == 0:
        raise PrecisionError("weights: there are none to quantise")
    if not np.isfinite(values).all():
        channel = int(np.flatnonzero(~np.isfinite(values.reshape(values.shape[0], -1)).all(axis=1))[0])
        raise PrecisionError(f"weights: NaN or infinity in output channel {channel}")
    if values.ndim > 1 and scheme.in_groups(values.shape[1]):
        return quantize_groups(values, scheme)
    channels = values.shape[0]
    rows = values.reshape(channels if scheme.granularity != "per_tensor" else 1, -1)
    if WEIGHTS[scheme.method].tensorflow:
        integers, scales = _tensorflow(rows, scheme)
    else:
        scales = weight_scales(rows, scheme)
        integers = integer_codes(rows, scales[:, None], scheme)
    codes = integers.astype(np.int8).reshape(values.shape)
    return codes, np.broadcast_to(scales, (channels,)).copy()


def dequantize_weights(codes: NDArray[np.int8], scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the float32 weights that the codes stand for; scales: (out_channels,)."""
    real: NDArray[np.float32] = codes.astype(np.float32) * scales.reshape(-1, *([1] * (codes.ndim - 1)))
    return real


def _tensorflow(rows: NDArray[np.float32], scheme: WeightScheme) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    from mpnet.quantization import fake_quant  # for its methods only

    integers, scales = np.zeros(rows.shape, np.float32), np.ones(len(rows), np.float32)
    channel = scheme.granularity != "per_tensor"
    for row_index, row in enumerate(rows):
        largest = np.abs(row).max()
        fake = scheme.method == "fake_quant_with_min_max_vars"
        steps = (
            fake_quant.fake_quant_steps(-largest, largest, scheme.bits, True)
            if fake
            else fake_quant.both_ways_steps(-largest, largest, -scheme.largest, scheme.largest)
        )
        if not steps.usable:
            raise PrecisionError(
                f"weights: {largest} is too small or too large a weight for method {scheme.method}; use min_max"
            )
        assert scheme.rounding is not None
        integers[row_index] = (
            fake_quant.fake_quant_integers(row, steps, channel=channel)
            if fake
            else fake_quant.both_ways_integers(row, steps, scheme.rounding)
        )
        scales[row_index] = steps.scale
    return integers, scales


def integer_codes(rows: NDArray[np.float32], steps: NDArray[np.float32], scheme: WeightScheme) -> NDArray[np.float32]:
    """Return the codes, as floats, of weights (rows, values); steps: of each, or (rows, 1)."""
    assert scheme.rounding is not None
    with np.errstate(over="ignore"):
        t = rows * (_f32(1) / steps)
    return round_to_integers(np.minimum(np.maximum(t, _f32(-scheme.largest)), _f32(scheme.largest)), scheme.rounding)


def weight_scales(rows: NDArray[np.float32], scheme: WeightScheme) -> NDArray[np.float32]:
    """Return the scale of each row (rows, values) of weights, which are finite."""
    largest = np.abs(rows).max(axis=1)
    base = np.where(largest == 0, _f32(1), np.maximum(largest / _f32(scheme.largest), _f32(2.0**-100))).astype(np.float32)
    if scheme.method == "min_max":
        return np.asarray(base, np.float32)
    if scheme.method == "mse":
        candidates = [np.maximum(base * shrink, _f32(2.0**-100)) for shrink in _SHRINK]
    else:
        candidates = [np.full_like(base, 2.0**exponent) for exponent in _EXPONENTS]
    best = candidates[0]
    least = squared_error(rows, best, scheme)
    for candidate in candidates[1:]:
        error = squared_error(rows, candidate, scheme)
        better = error < least
        best = np.where(better, candidate, best)
        least = np.where(better, error, least)
    return np.where(largest == 0, _f32(1), best).astype(np.float32)


def squared_error(rows: NDArray[np.float32], scales: NDArray[np.float32], scheme: WeightScheme) -> NDArray[np.float64]:
    """Sum of the squared errors of each row of weights with these scales, added in the order of the elements."""
    total = np.zeros(rows.shape[0])
    step = max(1, _PIECE // rows.shape[0])
    for start in range(0, rows.shape[1], step):
        piece = rows[:, start : start + step]
        wide = piece.astype(np.float64) - integer_codes(piece, scales[:, None], scheme).astype(np.float64) * scales[:, None]
        # accumulate is sequential by definition, where sum() may add in an order that depends on the CPU.
        squares = np.concatenate([total[:, None], wide * wide], axis=1)
        total = np.add.accumulate(squares, axis=1)[:, -1]
    return total


def largest_multiplier(bits: int) -> int:
    """Return the largest multiplier with which codes are of eight bits."""
    return 1 << (8 - bits)


def multiplier_bytes(filters: int, taps: int, channels: int, bits: int) -> int:
    """Count the bytes of the multipliers of a layer whose filters read so many channels at so many taps."""
    return -(-filters * taps * -(-channels // GROUP) * (8 - bits) // 8)


def quantize_groups(weights: NDArray[np.float32], scheme: WeightScheme) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return (products of codes and multipliers, scales) of weights (out, in / groups, ...): as quantize_weights."""
    scales, multipliers = group_steps(weights, scheme)
    steps = (scales[:, None] * multipliers).astype(np.float32)
    integers = integer_codes(weights.reshape(len(weights), -1), steps, scheme) * multipliers
    return integers.astype(np.int8).reshape(weights.shape), scales


def group_steps(weights: NDArray[np.float32], scheme: WeightScheme) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return scales (out,) and multipliers, a whole number for each weight, (out, values), of weights (out, in / groups, ...).

    A filter's scale is the one of 16 with which the squared error is least, where every group takes the best of three
    multipliers about the step that it would have alone.
    """
    blocks = _blocks(weights)
    filters, groups, size = blocks.shape
    rows = blocks.reshape(-1, size)
    alone = np.where(np.abs(rows).max(axis=1) > 0, weight_scales(rows, scheme), np.float32(0)).reshape(filters, groups)
    top, largest = alone.max(axis=1), np.float32(largest_multiplier(scheme.bits))
    least = np.full(filters, np.inf)
    scales, multipliers = np.ones(filters, np.float32), np.ones((filters, groups), np.float32)
    for share in _GROUP_SCALES:
        scale = np.where(top > 0, np.maximum(top / largest * share, np.float32(2.0**-100)), np.float32(1)).astype(np.float32)
        nearest = np.rint(alone / scale[:, None])
        errors, best_multipliers = np.full((filters, groups), np.inf), multipliers
        for offset in (-1, 0, 1):
            candidates = np.clip(nearest + np.float32(offset), np.float32(1), largest).astype(np.float32)
            error = squared_error(rows, (scale[:, None] * candidates).astype(np.float32).reshape(-1), scheme)
            better = error.reshape(filters, groups) < errors
            errors = np.where(better, error.reshape(filters, groups), errors)
            best_multipliers = np.where(better, candidates, best_multipliers)
        total = np.add.accumulate(errors, axis=1)[:, -1]
        better = total < least
        least = np.where(better, total, least)
        scales = np.where(better, scale, scales)
        multipliers = np.where(better[:, None], best_multipliers, multipliers)
    return scales, _repeat_for_weights(multipliers, weights)


def _blocks(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (out, taps * groups, 32), the last group filled up with zeros."""
    filters, channels = weights.shape[:2]
    groups = -(-channels // GROUP)
    padded = np.zeros((filters, groups * GROUP, weights[0, 0].size), np.float32)
    padded[:, :channels] = weights.reshape(filters, channels, -1)
    return np.asarray(padded.reshape(filters, groups, GROUP, -1).transpose(0, 3, 1, 2).reshape(filters, -1, GROUP))


def _repeat_for_weights(multipliers: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Repeat values of each group, (out, taps * groups), for each weight, (out, in / groups * taps)."""
    filters, channels = weights.shape[:2]
    of_group = multipliers.reshape(filters, weights[0, 0].size, -1).transpose(0, 2, 1)
    return np.asarray(np.repeat(of_group, GROUP, axis=1)[:, :channels].reshape(filters, -1))
