# SPDX-License-Identifier: MIT
"""One call of a kernel with all arguments ready, and what calls share: how images map to reals, scratch memory."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Any, Callable

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import KernelError
from mpnet.kernels.arguments import FLOAT, INT, aligned, check
from mpnet.kernels.interface import TensorQuant

Floats = NDArray[np.float32]


@dataclass(eq=False)
class Call:
    """function(*arguments) returns an mp_status, or None from Python.

    x_at: position of the input among the arguments; None: no tensor is read. keep: what must stay alive beside them.
    scratch_bytes: scratch memory that it needs.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    x_at: int | None = None
    keep: tuple[Any, ...] = field(default=(), repr=False)
    scratch_bytes: int = 0

    def set_input(self, x: NDArray[Any]) -> None:
        """Let the next call read another array of the same type and shape, which the caller keeps alive."""
        if self.x_at is not None:
            before, after = self.arguments[: self.x_at], self.arguments[self.x_at + 1 :]
            self.arguments = (*before, self._passed(x), *after)

    def use_scratch(self, memory: NDArray[np.uint8]) -> None:
        """Let it use this memory, of at least scratch_bytes and aligned to 64, for intermediate values."""

    def _passed(self, x: NDArray[Any]) -> Any:
        """What stands for the input among the arguments: the array, or its address."""
        return x


@dataclass(frozen=True, eq=False)
class ImageScales:
    """How images of codes map to reals, one value per image; filled before the calls that read them run."""

    scale: Floats
    inv_scale: Floats
    zero_point: NDArray[np.int32]
    offset: Floats

    def of_images(self, at: NDArray[np.intp]) -> ImageScales:
        """The scales of some images: image at[i] becomes image i."""
        return ImageScales(self.scale[at], self.inv_scale[at], self.zero_point[at], self.offset[at])


_local = threading.local()


def scratch(size_bytes: int) -> NDArray[np.uint8]:
    """The calling thread's scratch memory, grown when needed."""
    buffer: NDArray[np.uint8] | None = getattr(_local, "buffer", None)
    if buffer is None or buffer.size < size_bytes:
        buffer = _local.buffer = aligned(size_bytes)
    return buffer


def scales_of(quant: TensorQuant | ImageScales | None, what: str, *, written: bool = False) -> ImageScales | None:
    """The quant with its reciprocal. written: codes are made with it, not read. Raises: KernelError for bad values."""
    if not isinstance(quant, TensorQuant):
        return quant
    scale, zero_point, offset = quant.scale, quant.zero_point, quant.offset
    # Lists: batches are small, and NumPy takes a microsecond for each question.
    if not all(0 < s < math.inf for s in scale.tolist()) or not all(map(math.isfinite, offset.tolist())):
        raise KernelError(f"{what} has scale {scale} and offset {offset}; scales must be finite and above 0")
    if not all(-128 <= z <= 127 for z in zero_point.tolist()):
        raise KernelError(f"{what} has zero point {zero_point}; it must be in [-128, 127]")
    with np.errstate(over="ignore"):
        inverse: NDArray[np.float32] = np.float32(1) / scale
    if written and not np.isfinite(inverse).all():
        raise KernelError(f"{what}.scale is {scale}; its reciprocal must be finite")
    if written and offset.any():
        raise KernelError(f"{what}.offset is not 0; such codes are made by the quantise step of the mode that made it")
    return ImageScales(scale, inverse, zero_point, offset)


def per_image(scales: ImageScales | None, images: int, what: str, *fields: str) -> list[NDArray[Any]]:
    """The arrays of these fields, each checked to hold one value per image. Raises: KernelError."""
    if scales is None:
        raise KernelError(f"{what} is missing; codes need scale and zero point")
    arrays = []
    for name in fields:
        array = getattr(scales, name)
        check(array, f"{what}.{name}", INT if name == "zero_point" else FLOAT, (images,))
        arrays.append(array)
    return arrays
