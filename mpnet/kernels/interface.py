"""What every implementation of the kernels offers: the C tables and the NumPy oracle alike.

Activations are dense NHWC arrays, C-contiguous, of float32, float16 (storage only) or int8. N images go through
one call; whatever is measured or scaled dynamically is so per image, and no result depends on N, on the
number of threads or on the ISA level (docs/arithmetic.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.spec.precision import Precision

ACTIVATIONS: tuple[str, ...] = ("linear", "leaky", "relu", "relu6", "logistic", "mish", "swish")


@dataclass(frozen=True)
class ConvShape:
    """Geometry of a convolution; sizes in elements. Zero padding on all sides, Darknet's output size rule."""

    in_h: int
    in_w: int
    in_channels: int
    out_channels: int
    size: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1

    @property
    def out_h(self) -> int:
        return (self.in_h + 2 * self.padding - self.dilation * (self.size - 1) - 1) // self.stride + 1

    @property
    def out_w(self) -> int:
        return (self.in_w + 2 * self.padding - self.dilation * (self.size - 1) - 1) // self.stride + 1

    @property
    def depth(self) -> int:
        """Products summed for one output."""
        return self.size * self.size * (self.in_channels // self.groups)

    @property
    def macs(self) -> int:
        """Multiply-accumulates for one image, padding counted."""
        return self.out_h * self.out_w * self.out_channels * self.depth


@dataclass(frozen=True)
class TensorQuant:
    """How an int8 batch maps to real values, per image: real = (q - zero_point) * scale + offset.

    scale, offset: float32 (n,); zero_point: int32 (n,). offset is zero but for TensorFlow modes that cannot
    represent zero; padding taps hold zero_point.
    """

    scale: NDArray[np.float32]
    zero_point: NDArray[np.int32]
    offset: NDArray[np.float32]


class PackedConv(Protocol):
    """Weights in the order in which one implementation reads them. Opaque; made by `pack_conv`."""

    @property
    def shape(self) -> ConvShape:
        """The geometry that they were packed for."""
        ...

    @property
    def precision(self) -> Precision:
        """The precision that they were packed for."""
        ...

    @property
    def size_bytes(self) -> int:
        """Memory that they take."""
        ...


class Kernels(Protocol):
    """One table of kernels. `threads` never changes a result."""

    name: str

    def pack_conv(self, shape: ConvShape, precision: Precision, weights: NDArray[Any]) -> PackedConv:
        """weights: (out, in/groups, kh, kw), float32 (int8 for int8); rounded to half here for fp16."""
        ...

    def conv(
        self,
        packed: PackedConv,
        x: NDArray[Any],
        out: NDArray[Any],
        *,
        bias: NDArray[np.float32],
        activation: str = "linear",
        weight_scale: NDArray[np.float32] | None = None,
        in_quant: TensorQuant | None = None,
        out_quant: TensorQuant | None = None,
        out_rounding: str = "half_to_even",
        out_low: int = -128,
        out_high: int = 127,
        ranges: NDArray[np.float32] | None = None,
        pool: bool = False,
        threads: int = 1,
    ) -> None:
        """out = activation(conv(x) + bias), stored as out's dtype.

        x, out: (n, h, w, c). weight_scale: (out_channels,) for int8, with in_quant. out: float32; float16 (rounded half
        to even); or int8 with out_quant (calibrated). ranges: (n, 2) receives [min, max] per image of the float32
        result; of out itself when it is pooled, where it may not be int8.
        pool: out is what maxpool of size 2 and stride 2 makes of the result, with padding 0 or 1 as out's shape says.
        out_rounding, out_low, out_high: how an int8 out is rounded and clamped.
        Raises: KernelError for shapes and types that do not fit; NonFiniteError (both a KernelError and an EngineError)
        when a result is not finite before the activation, or after rounding to half; out is then unspecified.
        """
        ...

    def value_range(self, x: NDArray[Any], *, threads: int = 1) -> NDArray[np.float32]:
        """(n, 2) [min, max] per image of float32 or float16 values; raises NonFiniteError when one is not finite."""
        ...

    def quantize(
        self, x: NDArray[Any], out: NDArray[np.int8], quant: TensorQuant, *,
        rounding: str = "half_to_even", low: int = -128, high: int = 127, threads: int = 1,
    ) -> None:
        """q = clamp(round(x / scale) + zero_point, low, high) as docs/arithmetic.md says. x: float32 or float16."""
        ...

    def dequantize(self, x: NDArray[np.int8], out: NDArray[Any], quant: TensorQuant, *, threads: int = 1) -> None:
        """out (float32 or float16) = (q - zero_point) * scale + offset."""
        ...

    def cast(self, x: NDArray[Any], out: NDArray[Any], *, threads: int = 1) -> None:
        """float32 <-> float16, to nearest even."""
        ...

    def maxpool(
        self, x: NDArray[Any], out: NDArray[Any], *, size: int, stride: int, padding: int, threads: int = 1
    ) -> None:
        """Any of the three dtypes. padding: total padding; offset padding // 2; outside is minus infinity."""
        ...

    def avgpool(self, x: NDArray[Any], out: NDArray[Any], *, threads: int = 1) -> None:
        """Global mean per channel: (n, h, w, c) -> (n, 1, 1, c); float32 or float16, summed in float32 in row order."""
        ...

    def upsample(self, x: NDArray[Any], out: NDArray[Any], *, factor: int, threads: int = 1) -> None:
        """Nearest neighbour; any of the three dtypes."""
        ...

    def concat(self, inputs: Sequence[NDArray[Any]], out: NDArray[Any], *, threads: int = 1) -> None:
        """Along channels; one dtype."""
        ...

    def add(
        self, a: NDArray[Any], b: NDArray[Any], out: NDArray[Any], *, activation: str = "linear", threads: int = 1
    ) -> None:
        """activation(a + b) in float32, stored as float32 or float16."""
        ...
