"""Calls of kernels that are not C: each runs a method of `Kernels`, such as the NumPy oracle's."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.operations.base import ArrayCall
from mpnet.kernels.calls import Call, ImageScales
from mpnet.kernels.interface import Kernels, PackedConv, TensorQuant

Array = NDArray[Any]
Floats = NDArray[np.float32]


class OracleBinder:
    """What `mpnet.kernels.calls.Binder` is to the C kernels; its methods do what those of the same name do."""

    def __init__(self, kernels: Kernels, threads: int) -> None:
        self._kernels = kernels
        self._threads = threads

    def finish(self, memory: object = None) -> None:
        """Nothing is left to do."""

    def _call(self, method: Callable[..., None], *arguments: Any, **more: Any) -> Call:
        return ArrayCall(partial(method, **more, threads=self._threads), arguments)

    def conv(
        self, packed: PackedConv, x: Array, out: Array, *, in_scales: ImageScales | None,
        out_scales: ImageScales | None = None, **more: Any,
    ) -> Call:
        def run(x: Array, **more: Any) -> None:
            self._kernels.conv(packed, x, out, **more)

        return self._call(run, x, in_quant=_quant(in_scales), out_quant=_quant(out_scales), **more)

    def value_range(self, x: Array, ranges: Floats) -> Call:
        def run(x: Array, threads: int) -> None:
            ranges[...] = self._kernels.value_range(x, threads=threads)

        return self._call(run, x)

    def quantize(self, x: Array, out: Array, scales: ImageScales, rounding: str, low: int, high: int) -> Call:
        return self._call(self._kernels.quantize, x, out, _quant(scales), rounding=rounding, low=low, high=high)

    def dequantize(self, x: Array, out: Array, scales: ImageScales) -> Call:
        return self._call(self._kernels.dequantize, x, out, _quant(scales))

    def cast(self, x: Array, out: Array) -> Call:
        return self._call(self._kernels.cast, x, out)

    def maxpool(self, x: Array, out: Array, size: int, stride: int, padding: int) -> Call:
        return self._call(self._kernels.maxpool, x, out, size=size, stride=stride, padding=padding)

    def avgpool(self, x: Array, out: Array) -> Call:
        return self._call(self._kernels.avgpool, x, out)

    def upsample(self, x: Array, out: Array, factor: int) -> Call:
        return self._call(self._kernels.upsample, x, out, factor=factor)

    def concat(self, inputs: Sequence[Array], out: Array) -> list[Call]:
        def run(*inputs: Array, threads: int) -> None:
            self._kernels.concat(inputs, out, threads=threads)

        return [self._call(run, *inputs)]

    def add(self, a: Array, b: Array, out: Array, activation: str) -> Call:
        return self._call(self._kernels.add, a, b, out, activation=activation)


def _quant(scales: ImageScales | None) -> TensorQuant | None:
    """The same arrays, which may be filled later."""
    return None if scales is None else TensorQuant(scales.scale, scales.zero_point, scales.offset)
