# SPDX-License-Identifier: MIT
"""Conversions between storages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Sequence, TypeVar

import numpy as np

from mpnet.arrays import Array, CodeArray
from mpnet.engine.operations.base import Context, Operation, StepFields
from mpnet.engine.tensor import CodeMap, Tensor
from mpnet.kernels.call import Call
from mpnet.kernels.codes import ParamsArray
from mpnet.kernels.device import Device, copy_call
from mpnet.kernels.interface import CodeRules
from mpnet.model.precision import FP32, INT8, Precision
from mpnet.model.quantization import ACTIVATION_MODES, SCHEME_ROUNDINGS
from mpnet.model.reals import narrowed, widened
from mpnet.quantization import native as activations
from mpnet.quantization.scheme import ActivationScheme

AnyConversion = TypeVar("AnyConversion", bound=Operation)


@dataclass(frozen=True)
class Quantize(Operation):
    """Reals to codes. range: calibrated (min, max), None: measured on the tensor itself, per image."""

    scheme: ActivationScheme = field(default_factory=ActivationScheme)
    range: tuple[float, float] | None = None
    target: Precision = INT8
    is_conversion: ClassVar[bool] = True
    bundle: ClassVar[str] = "QUANTIZE"

    @property
    def detail(self) -> str:
        """Return the mode and whether the range is calibrated."""
        return f"{self.scheme.mode}, {'dynamic' if self.range is None else 'calibrated'}"

    def output_precision(self, input_precision: Precision) -> Precision | None:
        """Return the codes' precision for reals; codes are not quantized again."""
        return None if input_precision.carries_scale else self.target

    def needs(self, input_precision: Precision) -> tuple[tuple[str, Precision], ...]:
        """Return the kernel functions that it needs, each with its precision."""
        if self.scheme.is_tensorflow:
            return ()
        names = ("quantize",) if self.range is not None else ("value_range", "ranges_to_params", "quantize")
        return tuple([(name, input_precision) for name in names])

    def fixed_map(self, images: int, device: Device) -> CodeMap:
        """Return the map of the calibrated range, on a device. Raises: PrecisionError when it cannot be scaled."""
        ranges = np.repeat(np.array([self.range], np.float32), images, axis=0)
        return CodeMap.from_rows(activations.ranges_to_params(ranges, self.scheme), device)

    @property
    def rules(self) -> CodeRules | None:
        """Return the rules of codes, None in TensorFlow's modes, which have their own formulas."""
        if self.scheme.rounding is None or self.scheme.is_tensorflow:
            return None
        return CodeRules(self.scheme.rounding, self.scheme.low, self.scheme.high)

    def bind_scales(self, context: Context, x: Tensor, out: Tensor) -> list[Call]:
        """Return the calls that find the scale alone, for a reader that converts x itself."""
        scheme = self.scheme
        calls: list[Call] = []
        if self.range is not None:
            out.code_map = self.fixed_map(x.images, context.device)
        else:
            if x.ranges is None:
                x.ranges = context.allocate((x.images, 2))
                calls.append(context.binder.value_range(x.storage, x.ranges))
            out.code_map = CodeMap.unmeasured(x.images, scheme, context.device)
            calls += out.code_map.filled_from(x.ranges, scheme, context.binder)
        return calls

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        x, scheme = inputs[0], self.scheme
        calls = self.bind_scales(context, x, out)
        assert out.code_map is not None
        if scheme.is_tensorflow:
            calls.append(Call(_quantize_tensorflow, (x.host(), out.params, out.host(), context.threads), 0))
        else:
            assert scheme.rounding is not None
            calls.append(
                context.binder.quantize(
                    x.storage, out.storage, out.code_map.scales, rounding=scheme.rounding, low=scheme.low, high=scheme.high
                )
            )
        return calls

    def step_fields(self) -> StepFields:
        """Return the fields of a bundle's mpb_step that the operation decides."""
        low, high = self.range or (0.0, 0.0)
        return {
            "mode": ACTIVATION_MODES.index(self.scheme.mode),
            "rounding": SCHEME_ROUNDINGS.index(str(self.scheme.rounding)),
            "narrow_range": int(self.scheme.narrow_range),
            "ensure_minimum_range": self.scheme.ensure_minimum_range,
            "calibrated": int(self.range is not None),
            "low": low,
            "high": high,
        }


@dataclass(frozen=True)
class Dequantize(Operation):
    """Codes to reals; those of TensorFlow's modes by TensorFlow's order of operations."""

    target: Precision = FP32
    is_conversion: ClassVar[bool] = True
    checks_result: ClassVar[bool] = True
    bundle: ClassVar[str] = "DEQUANTIZE"

    def output_precision(self, input_precision: Precision) -> Precision | None:
        """Return the precision of reals for codes; reals are not dequantized."""
        return self.target if input_precision.carries_scale else None

    def needs(self, input_precision: Precision) -> tuple[tuple[str, Precision], ...]:
        """Return the kernel functions that it needs, each with its precision."""
        return (("dequantize", input_precision),)

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        x = inputs[0]
        assert x.code_map is not None
        if x.code_map.is_tensorflow:
            return [Call(_dequantize_tensorflow, (x.host(), x.params, out.host(), context.threads), 0)]
        return [context.binder.dequantize(x.storage, out.storage, x.code_map.scales)]


@dataclass(frozen=True)
class Cast(Operation):
    """Stores reals of one type as reals of another, rounded to nearest even."""

    target: Precision = FP32
    is_conversion: ClassVar[bool] = True
    bundle: ClassVar[str] = "CAST"
    functions: ClassVar[tuple[str, ...]] = ("cast",)

    def output_precision(self, input_precision: Precision) -> Precision | None:
        """Return the target for reals of another precision."""
        return None if input_precision.carries_scale or input_precision is self.target else self.target

    @property
    def rules(self) -> CodeRules | None:
        """Return rules that scale nothing, for fp16 only: what reads float32 reads it in place."""
        return None if self.target is FP32 else CodeRules()

    def bind_scales(self, context: Context, x: Tensor, out: Tensor) -> list[Call]:
        """Return no calls: a cast has no scale to find."""
        return []

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        return [context.binder.cast(inputs[0].storage, out.storage)]


@dataclass(frozen=True)
class Transfer(Operation):
    """The copy of a tensor to another device, as it is stored. target: the device's name."""

    target: str
    is_conversion: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        """Return the device that the tensor moves to."""
        return f"to {self.target}"

    def output_precision(self, input_precision: Precision) -> Precision | None:
        """Return the precision of the input, which stays."""
        return input_precision

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`."""
        x, device = inputs[0], out.storage.device
        calls = [copy_call(x.storage, out.storage)]
        if x.code_map is not None:
            out.code_map, copies = x.code_map.moved(device)
            calls += copies
        return calls


def conversion_between(
    source: Precision, target: Precision, quantize: Quantize | None = None
) -> Quantize | Dequantize | Cast | None:
    """Return what turns a tensor stored as `source` into `target`: `quantize` for codes, None when nothing does."""
    if source is target:
        return None
    if target.carries_scale:
        return quantize or Quantize(target=target)
    return Dequantize(target) if source.carries_scale else Cast(target)


def conversion_steps(source: Precision, conversion: AnyConversion) -> tuple[Dequantize | AnyConversion, ...]:
    """Return the steps of a conversion from `source`: codes become others by way of reals, or in whole numbers."""
    by_reals = source.carries_scale and isinstance(conversion, Quantize)
    return (Dequantize(source.widened), conversion) if by_reals else (conversion,)


def _quantize_tensorflow(x: Array, params: ParamsArray, out: CodeArray, threads: int) -> None:
    activations.quantize_activations(widened(x), params, out, threads=threads)


def _dequantize_tensorflow(x: CodeArray, params: ParamsArray, out: Array, threads: int) -> None:
    out[...] = narrowed(activations.dequantize_activations(x, params, tensorflow=True, threads=threads), out.dtype)
