# SPDX-License-Identifier: MIT
"""Operations on codes in whole numbers alone, as TensorFlow Lite's kernels compute them: docs/arithmetic.md, section 10.

What their tensors' codes mean is known before anything runs, so it belongs to the operation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.operations.base import Context, Operation, PreparedWeights
from mpnet.engine.operations.convolve import Convolve
from mpnet.engine.operations.pooling import MaxPool
from mpnet.engine.operations.rearrange import Concat
from mpnet.engine.tensor import CodeMap, Tensor
from mpnet.errors import PrecisionError
from mpnet.kernels.bundles import record
from mpnet.kernels.call import Call
from mpnet.kernels.core import CFields
from mpnet.kernels.interface import CodeRules, IntegerOutput, LeakySteps
from mpnet.model.network import Shape
from mpnet.model.precision import INT8, Precision
from mpnet.quantization.codes import LEAKY_SLOPE, Codes
from mpnet.quantization.fixed_point import ADD_SHIFTS, Factor, factor_of

INTEGER_ACTIVATIONS = ("linear", "relu", "relu6")
"""Those that are bounds of the codes of a sum."""
_NOTHING = Codes(1.0, 0)
_f32 = np.float32


def bounds(codes: Codes, activation: str) -> tuple[int, int]:
    """Return the least and the largest code of results of an activation, of WHOLE_ACTIVATIONS."""
    low = codes.least if activation == "linear" else max(codes.least, codes.zero_point)
    if activation != "relu6":
        return low, codes.largest
    return low, min(codes.largest, codes.zero_point + int(np.floor(_f32(6) / _f32(codes.scale) + _f32(0.5))))


def _rules(result: Codes, low: int, high: int, factors: Sequence[Factor] = (), **fields: int) -> NDArray[np.int32]:
    """Return what a bundle's step brings along, an mpb_integer_rules. low, high: bounds of the result's codes."""
    multipliers, shifts = zip(*factors, strict=True) if factors else ((), ())
    constants = {"scale": result.scale, "zero_point": result.zero_point, "low": low, "high": high}
    fields_of_rules: CFields = {**constants, "multiplier": multipliers, "shift": shifts, **fields}
    return np.frombuffer(record("mpb_integer_rules", fields_of_rules), np.int32)


@dataclass(frozen=True)
class IntegerQuantize(Operation):
    """Reals to codes: what enters a network of whole numbers. codes: of the result."""

    codes: Codes = _NOTHING
    target: Precision = INT8
    is_conversion: ClassVar[bool] = True
    bundle: ClassVar[str] = "INTEGER_QUANTIZE"
    functions: ClassVar[tuple[str, ...]] = ("quantize_by_division",)

    def output_precision(self, input_precision: Precision) -> Precision | None:
        """Return the codes' precision for reals; codes are not quantized again."""
        return None if input_precision.carries_scale else self.target

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        x, codes = inputs[0].storage, self.codes
        out.code_map = CodeMap.fixed(codes, inputs[0].images, context.device)
        arguments = (out.storage, out.storage.dtype, float(codes.scale), codes.zero_point, x.size)
        return [context.binder.call("quantize_by_division", x, *arguments)]

    def step_values(self, prepared: PreparedWeights, inputs: Sequence[Shape], result: Shape) -> NDArray[np.int32]:
        """Return the step's constants, an mpb_integer_rules."""
        return _rules(self.codes, self.codes.least, self.codes.largest)


@dataclass(frozen=True)
class IntegerRescale(Operation):
    """Codes to codes that mean the same reals. codes: of the input; result: of the result."""

    codes: Codes = _NOTHING
    result: Codes = _NOTHING
    target: Precision = INT8
    is_conversion: ClassVar[bool] = True
    bundle: ClassVar[str] = "INTEGER_RESCALE"
    functions: ClassVar[tuple[str, ...]] = ("rescale",)

    def output_precision(self, input_precision: Precision) -> Precision | None:
        """Return the target for codes."""
        return self.target if input_precision.carries_scale else None

    def factors(self) -> tuple[float, float]:
        """Return the factors of steps above the real 0, and below."""
        return (self.codes.scale / self.result.scale,) * 2

    def integer_factors(self) -> list[Factor]:
        """Return the factors as integer multipliers and shifts.

        Raises: PrecisionError where a step times one could leave 32 bits.
        """
        factors = [factor_of(factor) for factor in self.factors()]
        most = 30 - self.codes.bits
        if max(factor.shift for factor in factors) > most:
            raise PrecisionError(
                f"the range of its input is {max(self.factors()):.3g} times as wide as that of its result, at most 2^{most} "
                "can be scaled; calibrate on other images"
            )
        return factors

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        x, result = inputs[0].storage, self.result
        out.code_map = CodeMap.fixed(result, inputs[0].images, context.device)
        positive, negative = self.integer_factors()
        rules = (self.codes.zero_point, result.zero_point, result.least, result.largest, *positive, *negative)
        return [context.binder.call("rescale", x, x.dtype, out.storage, out.storage.dtype, *rules, x.size)]

    def step_values(self, prepared: PreparedWeights, inputs: Sequence[Shape], result: Shape) -> NDArray[np.int32]:
        """Return the step's constants, an mpb_integer_rules."""
        return _rules(self.result, self.result.least, self.result.largest, self.integer_factors())


@dataclass(frozen=True)
class IntegerLeaky(IntegerRescale):
    """LeakyReLU of codes."""

    is_conversion: ClassVar[bool] = False

    def factors(self) -> tuple[float, float]:
        """Return the factors of positive and of negative steps."""
        # In float32, as TensorFlow Lite computes them.
        scale, result = _f32(self.codes.scale), _f32(self.result.scale)
        return float(scale / result), float(scale * _f32(LEAKY_SLOPE) / result)


@dataclass(frozen=True)
class IntegerAdd(Operation):
    """The sum activation(a + b) of codes, of WHOLE_ACTIVATIONS. codes: of a and b; result: of the result."""

    codes: tuple[Codes, Codes] = (_NOTHING, _NOTHING)
    result: Codes = _NOTHING
    activation: str = "linear"
    bundle: ClassVar[str] = "INTEGER_ADD"
    functions: ClassVar[tuple[str, ...]] = ("add_codes",)

    def output_precision(self, input_precision: Precision) -> Precision | None:
        """Return the input's precision for codes; reals are not supported."""
        return input_precision if input_precision.carries_scale else None

    def integer_factors(self) -> list[Factor]:
        """Return the factors of a, of b, and of their sum. Raises: PrecisionError where that would be shifted to the left."""
        (a, b), result = self.codes, self.result
        wider = 2 * max(a.scale, b.scale)
        left = ADD_SHIFTS[result.bits]
        factors = [factor_of(a.scale / wider), factor_of(b.scale / wider), factor_of(wider / ((1 << left) * result.scale))]
        if factors[2].shift > 0:
            raise PrecisionError(f"the range of its sum is 2^{left} times narrower than those of its terms; calibrate again")
        return factors

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        (a, b), result, factors = self.codes, self.result, self.integer_factors()
        out.code_map = CodeMap.fixed(result, inputs[0].images, context.device)
        multipliers, shifts = (np.array(values, np.int32) for values in zip(*factors, strict=True))
        zero_points = np.array([a.zero_point, b.zero_point, result.zero_point], np.int32)
        x = inputs[0].storage
        rules = (zero_points, multipliers, shifts, *bounds(result, self.activation))
        return [context.binder.call("add_codes", x, inputs[1].storage, out.storage, x.dtype, *rules, x.size)]

    def step_values(self, prepared: PreparedWeights, inputs: Sequence[Shape], result: Shape) -> NDArray[np.int32]:
        """Return the step's constants, an mpb_integer_rules."""
        return _rules(self.result, *bounds(self.result, self.activation), self.integer_factors())


@dataclass(frozen=True)
class IntegerConcat(Concat):
    """Joins tensors of the same codes along channels."""

    def output_precision(self, input_precision: Precision) -> Precision | None:
        """Return the input's precision for codes; reals are not supported."""
        return input_precision if input_precision.carries_scale else None


@dataclass(frozen=True)
class IntegerConvolve(Convolve):
    """A convolution of codes that gives codes.

    codes: of its input; result: of its sums; activation: of WHOLE_ACTIVATIONS. leaky, pool: in the same pass, in this order.
    target: of what it gives; int16 of int8 as well, by the rule of 16 bits.
    """

    codes: Codes = _NOTHING
    result: Codes = _NOTHING
    activation: str = "linear"
    leaky: IntegerLeaky | None = None
    target: Precision = INT8
    bundle: ClassVar[str] = "INTEGER_CONVOLVE"
    functions: ClassVar[tuple[str, ...]] = ("integer_conv",)

    @property
    def name(self) -> str:
        """Return the name with the pool, where one is fused."""
        return f"Integer{'ConvolvePool' if self.pool else 'Convolve'}"

    @property
    def alone(self) -> Convolve:
        """Return the convolution without the operations that are fused into it."""
        return replace(self, leaky=None, pool=None)

    def output_precision(self, input_precision: Precision) -> Precision | None:
        """Return the target for the one input precision that the kernel reads."""
        return self.target if input_precision is self.precision.tensor else None

    @property
    def _target(self) -> Codes:
        """Return the codes of the result."""
        return self.result if self.leaky is None else self.leaky.result

    @property
    def _bounds(self) -> tuple[int, int]:
        """Return the bounds of the result's codes."""
        return bounds(self._target, self.activation if self.leaky is None else "linear")

    @property
    def _steps(self) -> tuple[int, int]:
        """Return the bounds of its sums before LeakyReLU, in steps from the real 0."""
        low, high = bounds(self.result, self.activation)
        return low - self.result.zero_point, high - self.result.zero_point

    def step_values(self, prepared: PreparedWeights, inputs: Sequence[Shape], result: Shape) -> NDArray[np.int32]:
        """Return the step's constants, an mpb_integer_rules."""
        if self.leaky is None:
            return _rules(self._target, *self._bounds)
        low, high = self._steps
        return _rules(self._target, *self._bounds, self.leaky.integer_factors(), leaky=1, leaky_low=low, leaky_high=high)

    def joined(self, reader: Operation) -> Operation | None:
        """Return the convolution with the leaky activation or the pool fused into it, None where it cannot be."""
        if isinstance(reader, IntegerLeaky) and self.leaky is None and self.pool is None:
            return replace(self, leaky=reader)
        return replace(self, pool=reader) if isinstance(reader, MaxPool) and self.pools(reader) else None

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        x, ready, target = inputs[0], context.prepared.convolution(self.alone), self._target
        assert x.code_map is not None
        assert ready.integer is not None
        shape, leaky = ready.packed.shape, None
        if self.leaky is not None:
            multipliers, shifts = zip(*self.leaky.integer_factors(), strict=True)
            leaky = LeakySteps(np.array(multipliers, np.int32), np.array(shifts, np.int32), self._steps)
        low, high = self._bounds
        out.code_map = CodeMap.fixed(target, x.images, context.device)
        return [
            context.binder.conv(
                ready.packed,
                x.storage.reshape((x.images, shape.in_h, shape.in_w, shape.in_channels)),
                out.storage,
                bias=ready.bias,
                weight_scale=ready.weight_scale,
                in_quant=x.code_map.scales,
                out_quant=out.code_map.scales,
                out_rules=CodeRules(low=low, high=high),
                pool=self.pool is not None,
                integer=IntegerOutput(*ready.integer, leaky),
            )
        ]
