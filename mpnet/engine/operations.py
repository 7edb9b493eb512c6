"""What a step can do, as small frozen values: equal operations on equal tensors give equal bits.

`takes` is the storage of its inputs, `gives` that of its result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from mpnet.quantization.scheme import ActivationScheme
from mpnet.quantization.weights import WeightScheme
from mpnet.spec.precision import FP32, INT8, Precision


@dataclass(frozen=True)
class Operation:
    """Base of all operations."""

    name: ClassVar[str] = ""
    is_conversion: ClassVar[bool] = False

    @property
    def detail(self) -> str:
        """What a table says beside the name."""
        return ""


@dataclass(frozen=True)
class Quantize(Operation):
    """fp32 or fp16 to int8. range: calibrated (min, max), None: measured on the tensor itself, per image."""

    scheme: ActivationScheme = field(default_factory=ActivationScheme)
    range: tuple[float, float] | None = None
    name: ClassVar[str] = "Quantize"
    is_conversion: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return f"{self.scheme.mode}, {'dynamic' if self.range is None else 'calibrated'}"


@dataclass(frozen=True)
class Dequantize(Operation):
    """int8 to fp32 or fp16."""

    target: Precision = FP32
    name: ClassVar[str] = "Dequantize"
    is_conversion: ClassVar[bool] = True


@dataclass(frozen=True)
class Cast(Operation):
    """fp32 to fp16 or back."""

    target: Precision = FP32
    name: ClassVar[str] = "Cast"
    is_conversion: ClassVar[bool] = True


@dataclass(frozen=True)
class Convolve(Operation):
    """The convolution of a layer at a precision: weights, bias, activation. int8 yields fp32, de-scaled.

    weights:   how they are quantised, for int8; None for other precisions.
    corrected: whether the bias takes back the mean shift of the rounded weights (int8 only).
    """

    layer: int = 0
    precision: Precision = FP32
    weights: WeightScheme | None = None
    corrected: bool = False
    name: ClassVar[str] = "Convolve"

    @property
    def detail(self) -> str:
        return f"{self.precision}"


@dataclass(frozen=True)
class ConvolveQuantize(Operation):
    """A convolution whose output stage quantises by a calibrated range: what a fused plan holds for the two steps."""

    convolve: Convolve = field(default_factory=Convolve)
    quantize: Quantize = field(default_factory=Quantize)
    name: ClassVar[str] = "ConvolveQuantize"

    @property
    def detail(self) -> str:
        return f"{self.convolve.detail}; {self.quantize.detail}"


@dataclass(frozen=True)
class MaxPool(Operation):
    """padding: total."""

    size: int = 1
    stride: int = 1
    padding: int = 0
    name: ClassVar[str] = "MaxPool"

    @property
    def detail(self) -> str:
        return f"{self.size}x{self.size}/{self.stride}"


@dataclass(frozen=True)
class ConvolvePool(Operation):
    """A convolution whose results are pooled, 2x2/2, before they leave the caches."""

    convolve: Convolve | ConvolveQuantize = field(default_factory=Convolve)
    pool: MaxPool = field(default_factory=MaxPool)
    name: ClassVar[str] = "ConvolvePool"

    @property
    def detail(self) -> str:
        return f"{self.convolve.detail}; {self.pool.detail}"


@dataclass(frozen=True)
class AvgPool(Operation):
    """Global mean per channel."""

    name: ClassVar[str] = "AvgPool"


@dataclass(frozen=True)
class Upsample(Operation):
    """Nearest neighbour."""

    factor: int = 2
    name: ClassVar[str] = "Upsample"

    @property
    def detail(self) -> str:
        return f"x{self.factor}"


@dataclass(frozen=True)
class Slice(Operation):
    """The channels start <= c < stop."""

    start: int = 0
    stop: int = 0
    name: ClassVar[str] = "Slice"

    @property
    def detail(self) -> str:
        return f"{self.start}:{self.stop}"


@dataclass(frozen=True)
class Concat(Operation):
    """Along channels."""

    name: ClassVar[str] = "Concat"


@dataclass(frozen=True)
class Add(Operation):
    """activation(a + b)."""

    activation: str = "linear"
    name: ClassVar[str] = "Add"

    @property
    def detail(self) -> str:
        return "" if self.activation == "linear" else self.activation


@dataclass(frozen=True)
class Yolo(Operation):
    """Hands the tensor over to box decoding, unchanged. number: of the head, from 1."""

    number: int = 1
    name: ClassVar[str] = "Yolo"


def convolution_of(operation: Operation) -> Convolve | None:
    """The convolution in an operation, fused or alone."""
    if isinstance(operation, ConvolvePool | ConvolveQuantize):
        return convolution_of(operation.convolve)
    return operation if isinstance(operation, Convolve) else None


def conversion_between(source: Precision, target: Precision, quantize: Quantize) -> Operation | None:
    """What turns a tensor stored as `source` into `target`; None when nothing needs to be done."""
    if source == target:
        return None
    if target == INT8:
        return quantize
    return Dequantize(target) if source == INT8 else Cast(target)
