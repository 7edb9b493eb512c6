"""Checks of the arguments of kernels: every message names the argument, its value and what it must be."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import KernelError
from mpnet.kernels.interface import ConvShape, TensorQuant

ROUNDINGS: tuple[str, ...] = ("half_to_even", "half_away", "truncate")
MAX_THREADS = 1024


def aligned(size_bytes: int) -> NDArray[np.uint8]:
    """Uninitialised bytes that start at a multiple of 64."""
    raw = np.empty(size_bytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size_bytes]


def check(array: NDArray[Any], what: str, types: Sequence[str], shape: Sequence[int] | None = None) -> None:
    """Raises KernelError unless array is C-contiguous, of one of the types and of the shape."""
    if not isinstance(array, np.ndarray):
        raise KernelError(f"{what} is a {type(array).__name__}; pass a NumPy array")
    if array.dtype.name not in types or not array.dtype.isnative:
        raise KernelError(f"{what} is {array.dtype}; it must be {' or '.join(types)}")
    if not array.flags.c_contiguous:
        raise KernelError(f"{what} is not C-contiguous; pass np.ascontiguousarray of it")
    if array.ctypes.data % array.dtype.itemsize:
        raise KernelError(f"{what} is not aligned to its element size; copy it")
    if shape is not None and array.shape != tuple(shape):
        raise KernelError(f"{what} has shape {array.shape}; it must be {tuple(shape)}")


def check_images(array: NDArray[Any], what: str, types: Sequence[str]) -> None:
    check(array, what, types)
    if array.ndim != 4 or array.size == 0:
        raise KernelError(f"{what} has shape {array.shape}; it must be (n, h, w, c), each at least 1")


def pooled_size(shape: ConvShape, out: NDArray[Any]) -> tuple[int, int]:
    """(height, width) of a convolution's result after 2x2/2 pooling, with or without incomplete windows as out says."""
    sides = []
    for axis, side in ((1, shape.out_h), (2, shape.out_w)):
        found = out.shape[axis] if out.ndim == 4 else 0
        allowed = sorted({max(side // 2, 1), (side + 1) // 2})
        if found not in allowed:
            raise KernelError(f"out has shape {out.shape}; pooling {side} makes {' or '.join(map(str, allowed))}")
        sides.append(found)
    return sides[0], sides[1]


def check_output(out: NDArray[Any], *inputs: NDArray[Any]) -> None:
    if not out.flags.writeable:
        raise KernelError("out is read-only; pass an array that may be written")
    for x in inputs:
        if np.may_share_memory(out, x):
            raise KernelError("out overlaps an input; pass a separate array")


def check_threads(threads: int) -> int:
    if not 1 <= threads <= MAX_THREADS:
        raise KernelError(f"threads is {threads}; it must be between 1 and {MAX_THREADS}")
    return int(threads)


def code_of(name: str, names: Sequence[str], what: str) -> int:
    if name not in names:
        raise KernelError(f"unknown {what} {name!r}; known are {', '.join(names)}")
    return names.index(name)


def check_quant(quant: TensorQuant | None, images: int, what: str) -> TensorQuant:
    if quant is None:
        raise KernelError(f"{what} is missing; int8 tensors need scale and zero point")
    check(quant.scale, f"{what}.scale", ("float32",), (images,))
    check(quant.zero_point, f"{what}.zero_point", ("int32",), (images,))
    check(quant.offset, f"{what}.offset", ("float32",), (images,))
    if not (np.isfinite(quant.scale).all() and (quant.scale > 0).all() and np.isfinite(quant.offset).all()):
        raise KernelError(
            f"{what} has scale {quant.scale} and offset {quant.offset}; scales must be finite and above 0"
        )
    if (quant.zero_point < -128).any() or (quant.zero_point > 127).any():
        raise KernelError(f"{what} has zero point {quant.zero_point}; it must be in [-128, 127]")
    return quant


def inverse_of(scale: NDArray[np.float32], what: str) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        inverse: NDArray[np.float32] = np.float32(1) / scale
    if not np.isfinite(inverse).all():
        raise KernelError(f"{what}.scale is {scale}; its reciprocal must be finite")
    return inverse


def check_codes(low: int, high: int) -> None:
    if not -128 <= low <= high <= 127:
        raise KernelError(f"codes from {low} to {high} do not fit; they must lie in [-128, 127]")
