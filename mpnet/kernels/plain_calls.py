"""Calls of the operations in csrc/combine.c and csrc/plain.c, their arguments checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import KernelError
from mpnet.kernels.arguments import ANY, CODES, FLOAT, INT, REALS, check, check_images, check_output, code_of
from mpnet.kernels.call import Call, Floats
from mpnet.kernels.interface import ACTIVATIONS, MAPPED_ACTIVATIONS, NORMALISATIONS, OPERANDS


class PlainCalls(ABC):
    """A part of `mpnet.kernels.calls.Binder`."""

    @abstractmethod
    def _call(self, function: str, x: NDArray[Any], *rest: Any) -> Call: ...

    def map(self, x: NDArray[Any], out: NDArray[Any], activation: str, scale: float = 1.0, shift: float = 0.0) -> Call:
        """activation(x * scale + shift), any of the activations."""
        check(x, "x", REALS)
        check(out, "out", REALS, x.shape)
        check_output(out, x)
        code = code_of(activation, ACTIVATIONS + MAPPED_ACTIVATIONS, "activation")
        return self._call("map", x, x.dtype, out, out.dtype, code, float(scale), float(shift), x.size)

    def combine(
        self, a: NDArray[Any], b: NDArray[Any], out: NDArray[Any], a_weight: Floats, b_weight: Floats, activation: str
    ) -> Call:
        """activation(a * a_weight + b * b_weight) with weights per channel; b may have other sizes, see csrc/mpnet.h.

        out may be a itself.
        """
        check_images(a, "a", REALS)
        check_images(b, "b", (a.dtype,))
        check(out, "out", REALS, a.shape)
        check_output(out, b)
        n, h, w, c = a.shape
        if len(b) != n:
            raise KernelError(f"combine: a has {n} images, b {len(b)}")
        check(a_weight, "a_weight", FLOAT, (c,))
        check(b_weight, "b_weight", FLOAT, (c,))
        code = code_of(activation, ACTIVATIONS, "activation")
        return self._call("combine", a, b, out, a.dtype, out.dtype, code, a_weight, b_weight, n, h, w, c, *b.shape[1:])

    def multiply(self, a: NDArray[Any], b: NDArray[Any], out: NDArray[Any], activation: str, operand: str) -> Call:
        """activation(a * b); b as a, (n, 1, 1, c) or (n, h, w, 1), as operand says."""
        check_images(a, "a", REALS)
        n, h, w, c = a.shape
        shapes = {"same": a.shape, "per_channel": (n, 1, 1, c), "per_pixel": (n, h, w, 1)}
        kind = code_of(operand, OPERANDS, "operand")
        check(b, "b", (a.dtype,), shapes[operand])
        check(out, "out", REALS, a.shape)
        check_output(out, a, b)
        code = code_of(activation, ACTIVATIONS, "activation")
        return self._call("multiply", a, b, out, a.dtype, out.dtype, code, kind, n, h, w, c)

    def gather(
        self, x: NDArray[Any], out: NDArray[Any], index: NDArray[np.int32], fill: NDArray[np.int32] | None = None
    ) -> Call:
        """out.flat[i] = x.flat[index[i]] of each image, where index < 0: 0; for codes fill, (n,)."""
        check_images(x, "x", ANY)
        check_images(out, "out", (x.dtype,))
        check_output(out, x)
        n, count, wanted = len(x), x.size // len(x), out.size // len(out)
        check(index, "index", INT, (wanted,))
        if index.max(initial=-1) >= count:
            raise KernelError(f"gather: index {index.max()} lies outside of {count} values")
        if fill is None:
            if x.dtype in CODES:
                raise KernelError("gather: codes need what stands for 0")
            fill = np.zeros(n, np.int32)
        check(fill, "fill", INT, (n,))
        return self._call("gather", x, out, x.dtype, n, count, wanted, index, fill)

    def normalize(
        self,
        x: NDArray[Any],
        out: NDArray[Any],
        kind: str,
        length: int,
        starts: NDArray[np.int32],
        parameters: Sequence[float] = (),
    ) -> Call:
        """Rows of `length` values by a formula of NORMALISATIONS, each segment between two of `starts` by itself."""
        check(x, "x", REALS)
        check(out, "out", (x.dtype,), x.shape)
        check_output(out, x)
        check(starts, "starts", INT)
        if length < 1 or x.size % length:
            raise KernelError(f"normalize: rows of {length} do not divide {x.size} values")
        four = [*map(float, parameters), 0.0, 0.0, 0.0, 0.0][:4]
        return self._call(
            "normalize",
            x,
            out,
            x.dtype,
            code_of(kind, NORMALISATIONS, "kind"),
            x.size // length,
            length,
            starts,
            len(starts) - 1,
            *four,
        )

    def local_avgpool(self, x: NDArray[Any], out: NDArray[Any], size: int, strides: tuple[int, int], padding: int) -> Call:
        """Mean of what of each window lies inside. strides: (x, y); padding: of both sides together."""
        check_images(x, "x", REALS)
        check_images(out, "out", (x.dtype,))
        check_output(out, x)
        n, h, w, c = x.shape
        return self._call("local_avgpool", x, out, x.dtype, n, h, w, c, out.shape[1], out.shape[2], size, *strides, padding)

    def channel_max(self, x: NDArray[Any], out: NDArray[Any]) -> Call:
        """out[g] = the largest of channels g, g + out's channels, ..."""
        check_images(x, "x", ANY)
        check(out, "out", (x.dtype,), (*x.shape[:3], out.shape[3]))
        check_output(out, x)
        channels = x.shape[3]
        return self._call("channel_max", x, out, x.dtype, x.size // channels, channels, out.shape[3])
