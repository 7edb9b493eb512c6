# SPDX-License-Identifier: MIT
"""The formulas by which a real range becomes scale and zero point of codes.

A quantised activation tensor holds int8 q in [-128, 127], or int16 q in [-32768, 32767] with zero point 0, and, per image,
scale (float32, > 0), zero_point (int32) and offset (float32):

    real = float(q - zero_point) * scale + offset        two roundings, in this order

offset is 0 but for MIN_COMBINED, whose codes do not hit the real 0: there zero_point is the code of 0, and offset is
the real value of that code (at most half a step). So in every mode a padding tap holds zero_point.

Quantising, all modes but MIN_COMBINED and fake_quant_with_min_max_vars, every operation one float32 rounding:

    t = x * inv_scale
    t = min(max(t, float(low - zero_point)), float(high - zero_point))      clamp before converting
    q = round(t) + zero_point

For affine, symmetric and power_of_two, inv_scale is 1 / scale in float32; TensorFlow's modes bring their own
(mpnet.quantization.tensorflow). MIN_COMBINED, with range_min and range_max as returned by TensorFlow:

    q = round((min(max(x, range_min), range_max) - range_min) * inv_scale - 128)

fake_quant_with_min_max_vars, counting the real 0 as `zero_point - low` steps from range_min:

    q = round((min(max(x, range_min), range_max) - range_min) / scale - (zero_point - low)) + zero_point

TensorFlow's modes treat denormal numbers as zero.
`csrc/quantize/scheme.c` computes the same bits.
Source: docs/arithmetic.md, section 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import CodeArray, RealArray
from mpnet.errors import PrecisionError
from mpnet.kernels.interface import TensorQuant
from mpnet.kernels.rounding import quantized, round_to_integers
from mpnet.model.quantization import MODES, SCHEME_ROUNDINGS, TENSORFLOW_MODES, ActivationMode

# Narrower ranges count as this scale: its reciprocal and its product with a weight scale stay normal numbers.
SMALLEST_SCALE = float(np.float32(2.0**-100))

FAKE_QUANT = "fake_quant_with_min_max_vars"

_f32 = np.float32


@dataclass(frozen=True)
class ActivationScheme:
    """The quantisation of activation tensors.

    mode:      affine (integer zero point, 0 is exact), symmetric ([-127, 127], zero point 0), power_of_two (symmetric,
               the scale is a power of two), or TensorFlow's MIN_COMBINED, MIN_FIRST, SCALED with type qint8, and its
               fake_quant_with_min_max_vars and (signed) quantize_and_dequantize of 8 bits.
    rounding:  half_to_even, half_away, truncate, half_up; None: the mode's own. Relative to the real zero.
    narrow_range, ensure_minimum_range: as in TensorFlow; for its modes only.
    bits:      of a code, 8 or 16; 16 in modes symmetric and power_of_two, whose scale then is of code 32767.
    Raises: PrecisionError for a combination that does not exist.
    """

    mode: str = "affine"
    rounding: str | None = None
    narrow_range: bool = False
    ensure_minimum_range: float = 0.01
    bits: int = field(default=8, repr=False)  # calibrations of codes of 8 bits are known by what repr says of their scheme

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise PrecisionError(f"activations: unknown mode {self.mode!r}; known are {', '.join(MODES)}")
        roundings = self._row.roundings
        if self.rounding is None:
            object.__setattr__(self, "rounding", roundings[0])
        if self.rounding not in SCHEME_ROUNDINGS:
            raise PrecisionError(f"activations: unknown rounding {self.rounding!r}; known are {', '.join(SCHEME_ROUNDINGS)}")
        if self.rounding not in roundings:
            raise PrecisionError(f"activations: mode {self.mode} does not round {self.rounding}; use {' or '.join(roundings)}")
        if self.narrow_range and not self._row.narrows:
            narrowing = " or ".join(mode.name for mode in MODES.values() if mode.narrows)
            raise PrecisionError(f"activations: narrow_range has no effect in mode {self.mode}; use {narrowing}, or drop it")
        if not (0.0 <= self.ensure_minimum_range < math.inf):
            raise PrecisionError(
                f"activations: ensure_minimum_range is {self.ensure_minimum_range}; it must be 0 or more, and finite"
            )

        if self.bits != 8 and (self.bits != 16 or self.is_tensorflow or not self.is_symmetric):
            raise PrecisionError(f"activations: mode {self.mode} has no codes of {self.bits} bits; use symmetric")

    @property
    def _row(self) -> ActivationMode:
        return MODES[self.mode]

    @property
    def is_tensorflow(self) -> bool:
        """Return whether the formulas are TensorFlow's."""
        return self._row.tensorflow

    @property
    def is_symmetric(self) -> bool:
        """Return whether codes lie evenly around the real zero."""
        return self._row.symmetric

    @property
    def low(self) -> int:
        """Return the smallest code in use."""
        if self.bits == 16:
            return -32768  # as TensorFlow Lite, whose scale is of 32767 as well
        return -127 if self.narrow_range or (self.is_symmetric and not self.is_tensorflow) else -128

    @property
    def high(self) -> int:
        """Return the largest code in use."""
        return (1 << (self.bits - 1)) - 1

    def of_bits(self, bits: int) -> ActivationScheme:
        """Return this scheme for codes of so many bits: where its mode does not have them, symmetric."""
        if bits == self.bits:
            return self
        if self.is_symmetric and not self.is_tensorflow:
            return replace(self, bits=bits)
        return ActivationScheme("symmetric", bits=bits)


@dataclass(frozen=True)
class QuantParams:
    """One tensor's mapping between reals and codes; floats hold float32 values.

    range_min, range_max: the reals that the codes span; in TensorFlow's modes the range that it returns.
    """

    mode: str
    rounding: str
    scale: float
    inv_scale: float
    zero_point: int
    offset: float
    low: int
    high: int
    range_min: float
    range_max: float


def range_to_params(minimum: float, maximum: float, scheme: ActivationScheme) -> QuantParams:
    """Return the scale and zero point for reals in [minimum, maximum]; the range always grows to hold 0.

    Order of operations, each rounded to float32:
      affine:        mn = min(minimum, 0), mx = max(maximum, 0); scale = mx / 255 - mn / 255;
                     zero_point = round_half_even(clamp(-128 - mn * inv_scale, -128, 127))
      symmetric:     scale = max(-mn, mx) / high; zero_point = 0
      power_of_two:  the smallest power of two that is >= max(-mn, mx) / high; zero_point = 0
      then           scale = 1 for an empty range, at least 2^-100 otherwise; inv_scale = 1 / scale
      TensorFlow:    see mpnet.quantization.tensorflow; MIN_FIRST has zero_point = -128 - round(mn * s)
    Raises: PrecisionError if a bound is not finite or minimum > maximum.
    """
    mn_in, mx_in = _f32(minimum), _f32(maximum)
    if not (np.isfinite(mn_in) and np.isfinite(mx_in)):
        raise PrecisionError(f"activation range [{mn_in}, {mx_in}] is not finite; the layer before it overflowed")
    if mn_in > mx_in:
        raise PrecisionError(f"activation range has min {mn_in} > max {mx_in}; calibrate again or swap them")
    if scheme.is_tensorflow:
        return _tensorflow_params(mn_in, mx_in, scheme)
    mn, mx = min(mn_in, _f32(0)), max(mx_in, _f32(0))
    zero_point = 0
    if scheme.mode == "affine":
        # Two quotients, because mx - mn may exceed float32 where the quotients do not.
        scale = _floor_scale(mx / _f32(255) - mn / _f32(255), mn, mx)
        inv_scale = _f32(1) / scale
        position = min(max(_f32(-128) - mn * inv_scale, _f32(-128)), _f32(127))
        zero_point = int(np.rint(position))
    else:
        scale = max(-mn, mx) / _f32(scheme.high)
        if scheme.mode == "power_of_two" and scale > 0:
            mantissa, exponent = math.frexp(float(scale))
            scale = _f32(math.ldexp(1.0, exponent - (mantissa == 0.5)))
        scale = _floor_scale(scale, mn, mx)
        inv_scale = _f32(1) / scale
    with np.errstate(over="ignore"):
        ends = _f32(scheme.low - zero_point) * scale, _f32(scheme.high - zero_point) * scale
    return _params(scheme, scale, inv_scale, zero_point, ends)


def _params(
    scheme: ActivationScheme,
    scale: np.float32,
    inv_scale: np.float32,
    zero_point: int,
    ends: tuple[np.float32, np.float32],
    offset: float = 0.0,
) -> QuantParams:
    """Return the parameters of a scheme. ends: the least and the largest real that the codes span."""
    low, high = map(float, ends)
    numbers = float(scale), float(inv_scale), zero_point, offset, scheme.low, scheme.high
    return QuantParams(scheme.mode, str(scheme.rounding), *numbers, low, high)


def _floor_scale(scale: np.float32, mn: np.float32, mx: np.float32) -> np.float32:
    if mn == mx:
        return _f32(1)
    return max(scale, _f32(SMALLEST_SCALE))


def _tensorflow_params(mn: np.float32, mx: np.float32, scheme: ActivationScheme) -> QuantParams:
    from mpnet.quantization import tensorflow as tf_formulas  # for its modes only

    if MODES[scheme.mode].fake:
        return _fake_params(mn, mx, scheme)
    factors = tf_formulas.quantize_factors(
        mn, mx, tf_formulas.QINT8, scheme.mode, scheme.narrow_range, scheme.ensure_minimum_range
    )
    scale = tf_formulas.dequantize_scale(factors.minimum, factors.maximum, tf_formulas.QINT8, scheme.mode, scheme.narrow_range)
    if not (np.isfinite(factors.scale) and factors.scale > 0 and np.isfinite(scale) and scale > 0):
        raise _no_scale(mn, mx, scheme)
    zero_point, offset = 0, 0.0
    if scheme.mode == "MIN_COMBINED":
        zero = np.zeros(1, np.float32)
        zero_point = int(tf_formulas.quantize_slice(zero, factors, tf_formulas.QINT8, scheme.mode, "half_away")[0])
        offset = float(_f32(zero_point + 128) * scale + factors.minimum)
    elif scheme.mode == "MIN_FIRST":
        zero_point = -128 - int(factors.minimum_code)
    return _params(scheme, scale, factors.scale, zero_point, (factors.minimum, factors.maximum), offset)


def _fake_params(minimum: np.float32, maximum: np.float32, scheme: ActivationScheme) -> QuantParams:
    from mpnet.quantization import fake_quant  # for these modes only

    mn, mx = min(minimum, _f32(0)), max(maximum, _f32(0))
    zero_point = 0
    if scheme.mode == FAKE_QUANT:
        steps = fake_quant.fake_quant_steps(mn, mx, 8, scheme.narrow_range)
    else:
        steps = fake_quant.both_ways_steps(mn, mx, scheme.low, scheme.high)
    if not steps.usable and max(-mn, mx) > 1:
        raise _no_scale(minimum, maximum, scheme)
    if not steps.usable:
        steps = fake_quant.EMPTY  # too narrow for a scale: every real becomes 0
    if scheme.mode == FAKE_QUANT:
        zero_point = scheme.low + int(steps.zero)
    return _params(scheme, steps.scale, steps.inv_scale, zero_point, (steps.minimum, steps.maximum))


def _no_scale(minimum: np.float32, maximum: np.float32, scheme: ActivationScheme) -> PrecisionError:
    return PrecisionError(
        f"activation range [{minimum}, {maximum}] is too narrow or too wide for mode {scheme.mode}; "
        "set ensure_minimum_range above 0 or use mode affine"
    )


def params_to_quant(params: list[QuantParams] | tuple[QuantParams, ...]) -> TensorQuant:
    """Turn one image's parameters each into the arrays that the kernels take."""
    return TensorQuant(
        scale=np.array([p.scale for p in params], np.float32),
        zero_point=np.array([p.zero_point for p in params], np.int32),
        offset=np.array([p.offset for p in params], np.float32),
    )


def quantize_activation(x: RealArray, params: QuantParams) -> CodeArray:
    """Quantize x (float32, or float16 widened exactly; any shape; finite) -> codes of the same shape, on the NumPy path.

    int8, or int16 where codes leave that.
    The formula stands at the top of this module; for TensorFlow's modes the bits are those of its CPU kernels.
    Raises: PrecisionError if x holds NaN or infinity.
    """
    from mpnet.quantization import tensorflow as tf_formulas

    values = np.asarray(x, np.float32)
    if not np.isfinite(values).all():
        raise PrecisionError("activations hold NaN or infinity; the layer before them overflowed")
    if params.mode in TENSORFLOW_MODES:
        values = tf_formulas.flush(values)
    if params.mode == "MIN_COMBINED":
        bounded = np.maximum(np.minimum(values, _f32(params.range_max)), _f32(params.range_min))
        t = tf_formulas.flush(bounded - _f32(params.range_min)) * _f32(params.inv_scale) - _f32(128)
        return round_to_integers(t, params.rounding).astype(np.int8)
    if params.mode == FAKE_QUANT:
        bounded = np.maximum(np.minimum(values, _f32(params.range_max)), _f32(params.range_min))
        shifted = tf_formulas.flush(bounded - _f32(params.range_min))
        position = tf_formulas.flush(np.divide(shifted, _f32(params.scale), dtype=_f32))
        steps = round_to_integers(position - _f32(params.zero_point - params.low), params.rounding)
        return (steps.astype(np.int32) + params.zero_point).astype(np.int8)
    codes = quantized(values, _f32(params.inv_scale), np.int32(params.zero_point), params.rounding, params.low, params.high)
    return codes.astype(np.int8 if params.high < 128 else np.int16)


def dequantize_activation(q: CodeArray, params: QuantParams) -> NDArray[np.float32]:
    """Dequantize codes to float32 reals, as the integer kernels read them: (q - zero_point) * scale + offset."""
    steps = (q.astype(np.int32) - np.int32(params.zero_point)).astype(np.float32)
    real: NDArray[np.float32] = steps * _f32(params.scale) + _f32(params.offset)
    return real


def dequantize_step(q: NDArray[np.int8], params: QuantParams) -> NDArray[np.float32]:
    """Dequantize int8 codes to float32 reals, as a Dequantize step gives them: TensorFlow's bits in TensorFlow's modes.

    MIN_COMBINED and MIN_FIRST sum in another order than dequantize_activation; the results differ by roundings only, those of
    MIN_FIRST by a step where the range's minimum lies half way between two codes: TensorFlow rounds it in two ways.
    """
    if params.mode not in TENSORFLOW_MODES:
        return dequantize_activation(q, params)
    from mpnet.quantization import tensorflow as tf_formulas

    if MODES[params.mode].fake:
        return tf_formulas.flush(dequantize_activation(q, params))
    return tf_formulas.dequantize_slice(
        q, _f32(params.range_min), _f32(params.range_max), tf_formulas.QINT8, params.mode, params.low == -127
    )


def fake_quantize_activation(x: RealArray, params: QuantParams) -> NDArray[np.float32]:
    """Return the reals that remain of x after a trip through codes."""
    return dequantize_activation(quantize_activation(x, params), params)
