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


class OracleBinder:
    """What `mpnet.kernels.calls.Binder` is to the C kernels; whatever is not said here takes what `Kernels` takes."""

    def __init__(self, kernels: Kernels, threads: int) -> None:
        self._kernels = kernels
        self._threads = threads

    def __getattr__(self, name: str) -> Callable[..., Call]:
        return partial(self._call, getattr(self._kernels, name))

    def _call(self, method: Callable[..., None], *arguments: Any, **more: Any) -> Call:
        given = [_quant(value) if isinstance(value, ImageScales) else value for value in arguments]
        return ArrayCall(partial(method, **more, threads=self._threads), tuple(given))

    def finish(self, memory: object = None) -> None:
        """Nothing is left to do."""

    def conv(
        self, packed: PackedConv, x: Array, out: Array, *, in_scales: ImageScales | None,
        out_scales: ImageScales | None = None, **more: Any,
    ) -> Call:
        """See Binder.conv."""
        def run(x: Array, **more: Any) -> None:
            self._kernels.conv(packed, x, out, **more)

        return self._call(run, x, in_quant=_quant(in_scales), out_quant=_quant(out_scales), **more)

    def value_range(self, x: Array, ranges: NDArray[np.float32]) -> Call:
        """See Binder.value_range."""
        def run(x: Array, threads: int) -> None:
            ranges[...] = self._kernels.value_range(x, threads=threads)

        return self._call(run, x)

    def concat(self, inputs: Sequence[Array], out: Array) -> list[Call]:
        """See Binder.concat."""
        return [self._call(self._kernels.concat, inputs, out)]


def _quant(scales: ImageScales | None) -> TensorQuant | None:
    """The same arrays, which may be filled later."""
    return None if scales is None else TensorQuant(scales.scale, scales.zero_point, scales.offset)
