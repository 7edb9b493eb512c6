# SPDX-License-Identifier: MIT
"""The one door to the C core: NumPy arrays go into its functions as they are.

No file outside of mpnet/kernels imports the extension. What other rooms call stands in a file of its topic: `bundles`, `codes`,
`heads`, `images`, `machine`, `matching`, `packing`; the kernels of tensors in `calls`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Mapping, Sequence, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array, DType
from mpnet.errors import KernelError
from mpnet.kernels import _core
from mpnet.kernels._core import ffi, lib

if TYPE_CHECKING:
    from mpnet.kernels._core import CData, CType

CArgument: TypeAlias = "Array | CData | int | float | None"
"""What stands for an argument of a C function: an array for its address, None for NULL."""
CFields: TypeAlias = "Mapping[str, CData | bytes | int | float | Sequence[float]]"
"""Fields of a C struct by name, where it is made."""

LIBRARY_PATH = str(_core.__file__)
"""The file of the extension, for keys of caches: another build may give other bytes."""
PACK_VERSION: int = lib.MP_PACK_VERSION
"""The order of packed weights; it rises when that changes."""
OK: int = lib.MP_OK
NONFINITE: int = lib.MP_NONFINITE
"""The status of a call that met NaN or infinity."""
C_ARRAY: dict[DType, CType[CData]] = {
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


def address(array: Array) -> CData:
    """Return a pointer to the values of a C-contiguous array, which it keeps alive."""
    return ffi.from_buffer(C_ARRAY[array.dtype], array)


def c_arguments(*values: CArgument) -> list[CData | int | float]:
    """Return the arguments of a C function: addresses of arrays, which are C-contiguous, NULL for None, all else as it is.

    The addresses keep their arrays alive.
    """
    return [address(value) if isinstance(value, np.ndarray) else ffi.NULL if value is None else value for value in values]


def constant(name: str) -> int:
    """Return a number that a header of csrc/ declares, such as MP_STRETCH. Raises: KernelError for a name it does not have."""
    try:
        return int(getattr(lib, name))
    except AttributeError:
        raise KernelError(
            f"{LIBRARY_PATH} has no {name}: it was built from other sources; build it again (`make`, or `pip install -e .`)"
        ) from None


def struct(kind: str, fields: CFields) -> CData:
    """Return a C struct of this kind; fields that are not given are 0. It does not keep alive what its fields point to."""
    return ffi.new(f"{kind} *", dict(fields))


def check_status(status: int, what: str) -> None:
    """Raise KernelError unless a function of the C core took its arguments; what: it does, for the message."""
    if status != lib.MP_OK:
        raise KernelError(f"{what} refused its arguments (status {status})")


def call(what: str, function: Callable[..., int], *values: CArgument) -> None:
    """Call a function of the C core with `c_arguments(*values)`.

    Raises: KernelError, which begins with `what`, unless it took them.
    """
    check_status(function(*c_arguments(*values)), what)


def crc32c(content: bytes | memoryview | Array) -> int:
    """Return the CRC-32C of bytes or of a C-contiguous array."""
    size = memoryview(content.data if isinstance(content, np.ndarray) else content).nbytes
    return int(lib.mp_crc32c(0, ffi.from_buffer(content), size))


def exponentials(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return e^x by csrc/mp_math.h, value by value: the same bits on every CPU."""
    values = np.ascontiguousarray(x, np.float32)
    out = np.empty_like(values)
    lib.mp_exp_array(values.size, address(values), address(out))
    return out
