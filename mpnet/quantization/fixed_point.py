# SPDX-License-Identifier: MIT
"""Real factors as whole numbers, and what a convolution in whole numbers alone computes with.

TensorFlow Lite's: a factor is a multiplier of 31 bits and a shift, multiplier * 2^(shift - 31); docs/arithmetic.md, section 10.
`csrc/fixed_point.h` multiplies by them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import PrecisionError
from mpnet.kernels.core import constant
from mpnet.quantization.codes import Codes
from mpnet.quantization.weights import dequantize_weights

BIAS_TYPES: dict[int, type[np.int32] | type[np.int64]] = {8: np.int32, 16: np.int64}
"""Of biases as TensorFlow Lite stores them, by the bits of the codes that a convolution gives."""
MOST_SHIFT = constant("MP_MOST_SHIFT")
ADD_SHIFTS: dict[int, int] = {8: constant("MP_ADD_SHIFT_8"), 16: constant("MP_ADD_SHIFT_16")}
"""How far terms are shifted to the left before they are added, by the bits of their codes."""
_SUM_BITS = {8: 31, 16: 47}
"""Of a sum and its bias, without the sign."""
# A bias of a channel whose weights mean next to nothing must not leave these.
_LARGEST_BIAS = {bits: 2.0 ** (sum_bits - 1) for bits, sum_bits in _SUM_BITS.items()}
# Sums are scaled by a factor of this size at least.
_LEAST_FACTOR = 2.0**-31


class Factor(NamedTuple):
    """A real factor as whole numbers."""

    multiplier: int
    shift: int


def factor_of(real: float) -> Factor:
    """Return the nearest factor to a real of 0 or more; 0 where that is below 2^-32. Raises: PrecisionError above 2^30."""
    mantissa, shift = math.frexp(real)
    multiplier = math.floor(mantissa * 2.0**31 + 0.5)
    if multiplier == 1 << 31:
        multiplier, shift = multiplier // 2, shift + 1
    if shift > 30:
        raise PrecisionError(f"a range is {real:.3g} times wider than the one that it is scaled to; calibrate on other images")
    return Factor(0, 0) if shift < -31 else Factor(multiplier, shift)


def integer_bias(bias: NDArray[np.float32], scales: NDArray[np.float32], codes: Codes) -> NDArray[np.float64]:
    """Return a bias (out,) counted in steps of the products of an input's codes and weights with these scales."""
    steps: NDArray[np.float64] = np.rint(bias / (scales.astype(np.float64) * codes.scale))
    return steps


def within_reach(
    weights: NDArray[np.int8], scales: NDArray[np.float32], bias: NDArray[np.float32], codes: Codes, sums: Codes | None
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return the codes and scales of weights with which bias and sums stay within what can be scaled.

    Only channels whose weights mean next to nothing beside their bias or the result's step get other codes.
    """
    least = np.abs(bias) / (_LARGEST_BIAS[(sums or codes).bits] * codes.scale)
    if sums is not None:
        least = np.maximum(least, _LEAST_FACTOR * sums.scale / codes.scale)
    wider = np.maximum(scales, least.astype(np.float32))
    if np.array_equal(wider, scales):
        return weights, scales
    real = dequantize_weights(weights, scales)
    rescaled = np.rint(real / wider.reshape(-1, 1, 1, 1)).astype(np.int8)
    keep = (wider == scales).reshape(-1, 1, 1, 1)
    return np.where(keep, weights, rescaled), wider


class IntegerConstants(NamedTuple):
    """The constants by which a convolution's sums become codes.

    bias:              (out,) of BIAS_TYPES.
    multiplier, shift: the factor of each channel, int32 (out,).
    """

    bias: NDArray[np.int32 | np.int64]
    multiplier: NDArray[np.int32]
    shift: NDArray[np.int32]


def integer_constants(
    bias: NDArray[np.float32], scales: NDArray[np.float32], codes: Codes, sums: Codes, filters: NDArray[np.int64]
) -> IntegerConstants:
    """Return the constants of weights with these scales that read `codes` and whose sums become the codes `sums`.

    filters: the sum of a filter's magnitudes, in steps of its scale.
    Raises: PrecisionError where a sum can leave its bits, or its range is too narrow beside that of the products.
    """
    factors = [factor_of(codes.scale * scale / sums.scale) for scale in scales.astype(np.float64).tolist()]
    multiplier, shift = (np.array(part, np.int32) for part in zip(*factors, strict=True))
    counted_bias = integer_bias(bias, scales, codes).astype(np.int64)
    if shift.max() > MOST_SHIFT:
        steps = codes.scale * float(scales.max()) / sums.scale
        raise PrecisionError(
            f"channel {int(shift.argmax())}: its products' step is {steps:.3g} times that of its results, "
            f"{2**MOST_SHIFT} or more cannot be scaled; calibrate on other images"
        )
    farthest = max(codes.largest - codes.zero_point, codes.zero_point - codes.least)
    reach = filters * farthest + np.abs(counted_bias)
    # What is above 0 of a shift comes before the product, in sums of 32 bits.
    before = np.zeros(len(shift), np.int64) if sums.is_wide else np.maximum(shift, 0).astype(np.int64)
    room = np.int64(1 << _SUM_BITS[sums.bits]) >> before
    if (reach >= room).any():
        channel = int((reach >= room).argmax())
        raise PrecisionError(
            f"channel {channel}: its sums can reach {int(reach[channel]):,}, beyond the {int(room[channel]):,} that "
            f"{_SUM_BITS[sums.bits] + 1} bits hold here; set another precision for the layer, or leave integer_only out"
        )
    return IntegerConstants(counted_bias.astype(BIAS_TYPES[sums.bits]), multiplier, shift)
