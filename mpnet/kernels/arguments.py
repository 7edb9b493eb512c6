# SPDX-License-Identifier: MIT
"""Checks of the arguments of kernels: every message names the argument, its value and what it must be."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpnet.arrays import DType
from mpnet.config.limits import MAX_THREADS
from mpnet.errors import KernelError
from mpnet.kernels.device import HostStorage, Storage, Values
from mpnet.kernels.interface import ACTIVATION_CODE, ConvShape
from mpnet.model.precision import STORED_TYPES

Types = tuple[DType, ...]
FLOAT: Types = (np.dtype(np.float32),)
INT: Types = (np.dtype(np.int32),)
WIDE_INT: Types = (np.dtype(np.int64),)
REALS: Types = tuple(stored.dtype for stored in STORED_TYPES.values() if not stored.is_code)
CODES: Types = tuple(stored.dtype for stored in STORED_TYPES.values() if stored.is_code)
ANY: Types = REALS + CODES
KernelArgument = Values | DType | int | float
"""An argument of a function of csrc/mpnet.h: a tensor for an address, a dtype for a type."""
ConvFields = dict[str, KernelArgument]
"""Fields of mp_conv_args by name, as such arguments."""


def check(values: Values, what: str, types: Types, shape: tuple[int, ...] | None = None) -> None:
    """Refuse values that are not C-contiguous, of one of the types and of the shape. Raises: KernelError."""
    array = values.array if type(values) is HostStorage else values
    if not isinstance(array, np.ndarray):
        _check_foreign(array, what, types, shape)
        return
    if array.dtype not in types:
        raise KernelError(f"{what} is {array.dtype}; it must be {' or '.join(map(str, types))}")
    flags = array.flags
    if not flags.c_contiguous:
        raise KernelError(f"{what} is not C-contiguous; pass np.ascontiguousarray of it")
    if not flags.aligned:
        raise KernelError(f"{what} is not aligned to its element size; copy it")
    if shape is not None and array.shape != shape:
        raise KernelError(f"{what} has shape {array.shape}; it must be {shape}")


def _check_foreign(values: object, what: str, types: Types, shape: tuple[int, ...] | None) -> None:
    """Refuse memory of another device by its type and shape, and what is no tensor at all."""
    if not isinstance(values, Storage):
        raise KernelError(f"{what} is a {type(values).__name__}; pass a NumPy array")
    if values.dtype not in types:
        raise KernelError(f"{what} is {values.dtype}; it must be {' or '.join(map(str, types))}")
    if shape is not None and values.shape != shape:
        raise KernelError(f"{what} has shape {values.shape}; it must be {shape}")


def check_images(values: Values, what: str, types: Types) -> None:
    """Refuse what is no batch of images (n, h, w, c) of one of the types. Raises: KernelError."""
    check(values, what, types)
    if len(values.shape) != 4 or values.size == 0:
        raise KernelError(f"{what} has shape {values.shape}; it must be (n, h, w, c), each at least 1")


def pooled_size(shape: ConvShape, out: Values) -> tuple[int, int]:
    """Return (height, width) of a convolution's result after 2x2/2 pooling, with or without incomplete windows as out says."""
    sides = []
    for axis, side in ((1, shape.out_h), (2, shape.out_w)):
        pooled = out.shape[axis] if len(out.shape) == 4 else 0
        sizes = sorted({max(side // 2, 1), (side + 1) // 2})
        if pooled not in sizes:
            raise KernelError(f"out has shape {out.shape}; pooling {side} makes {' or '.join(map(str, sizes))}")
        sides.append(pooled)
    return sides[0], sides[1]


def check_output(out: Values, *inputs: Values) -> None:
    """Refuse a result that may not be written, or that lies where an input does. Raises: KernelError."""
    array = out.array if type(out) is HostStorage else out
    if not isinstance(array, np.ndarray):
        return
    if not array.flags.writeable:
        raise KernelError("out is read-only; pass an array that may be written")
    for x in inputs:
        other = x.array if type(x) is HostStorage else x
        if isinstance(other, np.ndarray) and np.may_share_memory(array, other):
            raise KernelError("out overlaps an input; pass a separate array")


def check_threads(threads: int) -> int:
    """Return the number of threads. Raises: KernelError where it is out of range."""
    if not 1 <= threads <= MAX_THREADS:
        raise KernelError(f"threads is {threads}; it must be between 1 and {MAX_THREADS}")
    return int(threads)


def code_of(name: str, names: Sequence[str], what: str) -> int:
    """Return the number of a name in a list. what: what the name is of, for the message of the KernelError."""
    if name not in names:
        raise KernelError(f"unknown {what} {name!r}; known are {', '.join(names)}")
    return names.index(name)


def activation_code(word: str, words: Sequence[str]) -> int:
    """Return the number of an activation in csrc/mpnet.h. words: those that a kernel has. Raises: KernelError for others."""
    code_of(word, words, "activation")
    return ACTIVATION_CODE[word]


def check_codes(low: int, high: int, dtype: DType) -> None:
    """Check that codes from low to high fit a type of codes. Raises: KernelError."""
    beyond = 1 << (8 * dtype.itemsize - 1)
    smallest, largest = -beyond, beyond - 1
    if not smallest <= low <= high <= largest:
        raise KernelError(f"codes from {low} to {high} do not fit; they must lie in [{smallest}, {largest}]")
