# SPDX-License-Identifier: MIT
"""NumPy arrays go into functions of the C core as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import KernelError
from mpnet.kernels._core import ffi, lib

C_ARRAY: dict[Any, Any] = {
    np.dtype(kind): ffi.typeof(f"{name}[]")
    for kind, name in (
        (np.float16, "char"),
        (np.float32, "float"),
        (np.float64, "double"),
        (np.int8, "int8_t"),
        (np.int16, "int16_t"),
        (np.uint8, "uint8_t"),
        (np.uint16, "uint16_t"),
        (np.int32, "int32_t"),
        (np.int64, "int64_t"),
        (np.uint64, "uint64_t"),
    )
}
"""What C takes a C-contiguous array of each dtype for; halves, which C has no type for, as bytes."""


def address(array: NDArray[Any]) -> Any:
    """Of the values of a C-contiguous array, as a pointer that keeps the array alive."""
    return ffi.from_buffer(C_ARRAY[array.dtype], array)


def c_arguments(*values: Any) -> list[Any]:
    """Arguments of a C function: the address of an array, which is C-contiguous, NULL for None, all else as it is.

    The addresses keep their arrays alive.
    """
    return [address(value) if isinstance(value, np.ndarray) else ffi.NULL if value is None else value for value in values]


def check_status(status: int, what: str) -> None:
    """Raise KernelError unless a function of the C core took its arguments; what: it does, for the message."""
    if status != lib.MP_OK:
        raise KernelError(f"{what} refused its arguments (status {status})")


def call(what: str, function: Any, *values: Any) -> None:
    """Call a function of the C core with `c_arguments(*values)`. Raises: KernelError, which begins with `what`, unless it
    took them."""
    check_status(function(*c_arguments(*values)), what)


def exponentials(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """e^x by csrc/mp_math.h, value by value: the same bits on every CPU."""
    given = np.ascontiguousarray(x, np.float32)
    out = np.empty_like(given)
    lib.mp_exp_array(given.size, address(given), address(out))
    return out
