# SPDX-License-Identifier: MIT
"""The kernels of the C tables.

cffi releases the GIL during each call; scratch memory belongs to the calling thread, so one NativeKernels may be
used from several threads at once.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING, Iterable, cast

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array, DType
from mpnet.errors import KernelError, NonFiniteError
from mpnet.kernels._core import ffi, lib
from mpnet.kernels.arguments import FLOAT, ConvFields, KernelArgument, check
from mpnet.kernels.call import Call
from mpnet.kernels.core import C_ARRAY, address
from mpnet.kernels.device import HostStorage, Storage, Values, array_of
from mpnet.kernels.implementation import Kernels
from mpnet.kernels.interface import ConvShape, PackedConv
from mpnet.kernels.memory import aligned
from mpnet.model.precision import PRECISIONS, STORED_TYPES, Precision

if TYPE_CHECKING:
    from mpnet.kernels._core import CData, ConvArgs, ShapePointer

PRECISION_CODE: dict[str, int] = {
    name: getattr(lib, f"MP_{name.upper()}") for name in PRECISIONS if hasattr(lib, f"MP_{name.upper()}")
}
TYPE_CODE: dict[DType, int] = {t.dtype: getattr(lib, f"MP_TYPE_{t.c_name}") for t in STORED_TYPES.values()}
_CONV_ARGS = ffi.typeof("mp_conv_args *")


def _as_argument(values: Iterable[KernelArgument]) -> list[CData | int | float]:
    """Return the tensors as their addresses, dtypes as the codes of their stored types, numbers as they are."""
    # Sessions bind dozens of calls before their first result, so this looks at types in the order of how many there are.
    return [
        value
        if type(value) is int or type(value) is float
        else ffi.from_buffer(C_ARRAY[value.dtype], value.array)
        if type(value) is HostStorage
        else ffi.from_buffer(C_ARRAY[value.dtype], value)
        if isinstance(value, np.ndarray)
        else address(array_of(value))
        if isinstance(value, Storage)
        else TYPE_CODE[value]
        if isinstance(value, np.dtype)
        else value
        for value in values
    ]


def _c_shape(shape: ConvShape) -> ShapePointer:
    sizes = astuple(shape)
    if any(not isinstance(v, (int, np.integer)) or abs(v) >= 2**31 for v in sizes):
        raise KernelError(f"convolution {shape}: sizes must be integers below 2^31")
    return ffi.new("mp_conv_shape *", [int(v) for v in sizes])


class _NativeCall(Call):
    def _as_argument(self, x: Array) -> CData:
        return address(x)


class _ConvCall(Call):
    """A call of mp_conv(table, args), whose input and scratch memory are fields of args."""

    def __init__(self, table: CData, args: ConvArgs, keep: tuple[object, ...], scratch_bytes: int) -> None:
        super().__init__(lib.mp_conv, (table, args), None, keep, scratch_bytes)
        self._args = args

    def set_input(self, x: Array) -> None:
        setattr(self._args, "in", address(x))

    def use_scratch(self, memory: NDArray[np.uint8]) -> None:
        self._args.scratch, self._args.scratch_bytes = address(memory), memory.size
        self.keep = (*self.keep, memory)


class NativeKernels(Kernels):
    """The C kernels of one ISA level. Get one from `mpnet.kernels.isa.kernels`.

    Raises NonFiniteError (also an EngineError) when a result is NaN or infinite; out is then unspecified.
    table: the C table, for measurements of the machine.
    """

    def __init__(self, name: str, table: CData) -> None:
        self.name = name
        self.table = table

    def __repr__(self) -> str:
        return f"NativeKernels({self.name!r})"

    def precisions(self) -> tuple[str, ...]:
        """Return the names of the precisions that this level's convolutions have."""
        return tuple(name for name, code in PRECISION_CODE.items() if lib.mp_table_has(self.table, code))

    def check_status(self, status: int | None, what: str) -> None:
        """Implement `Kernels.check_status` with the reasons that the C core gives."""
        if status == lib.MP_OK:
            return
        if status == lib.MP_NONFINITE:
            raise NonFiniteError(f"{what}: a result is NaN or infinite")
        reasons: dict[int | None, str] = {
            lib.MP_BAD_ARGUMENT: "an argument is out of range",
            lib.MP_BAD_SHAPE: "this shape cannot be computed",
            lib.MP_OVERFLOW: "a weight is beyond its codes and their multiples, or the sums could leave int32: at most 66311 "
            "products may be added",
            lib.MP_UNSUPPORTED: f"ISA level {self.name} does not have this precision",
        }
        raise KernelError(f"{what}: {reasons.get(status, f'status {status}')}")

    def pack_conv(self, shape: ConvShape, precision: Precision, weights: Array) -> PackedConv:
        """Implement `Kernels.pack_conv`."""
        c_shape, code, what = self._checked_conv(shape, precision, weights)
        given = address(weights)
        size = lib.mp_pack_bytes(self.table, c_shape, code, given)
        data = aligned(size)
        self.check_status(lib.mp_pack_conv(self.table, c_shape, code, given, address(data), size), what)
        return PackedConv(shape, precision, self.name, size, data, c_shape)

    def check_conv(self, shape: ConvShape, precision: Precision, weights: Array) -> None:
        """Check that a convolution can be computed and that these are weights for it. Raises: KernelError."""
        self._checked_conv(shape, precision, weights)

    def _checked_conv(self, shape: ConvShape, precision: Precision, weights: Array) -> tuple[ShapePointer, int, str]:
        """Return the shape and the precision as C takes them, and words for messages. Raises: KernelError."""
        codes = f" (weights in [{-precision.largest_code}, {precision.largest_code}])" if precision.carries_scale else ""
        what = f"convolution {shape} in {precision.name}{codes}"
        c_shape, code = _c_shape(shape), PRECISION_CODE.get(precision.name)
        if code is None:
            raise KernelError(f"no kernels for precision {precision.name!r}")
        self.check_status(lib.mp_check_conv(self.table, c_shape, code), what)
        types = (precision.weights.dtype,) if precision.carries_scale else FLOAT
        in_group = shape.in_channels // shape.groups
        check(weights, "weights", types, (shape.out_channels, in_group, shape.size, shape.size))
        return c_shape, code, what

    def adopt_packed(self, shape: ConvShape, precision: Precision, data: NDArray[np.uint8]) -> PackedConv | None:
        """Implement `Kernels.adopt_packed`."""
        c_shape, code = _c_shape(shape), PRECISION_CODE.get(precision.name)
        if code is None or lib.mp_check_packed(self.table, c_shape, code, address(data), data.size) != lib.MP_OK:
            return None
        return PackedConv(shape, precision, self.name, data.size, data, c_shape)

    def takes_sums(self, packed: PackedConv) -> bool:
        """Implement `Kernels.takes_sums`."""
        return bool(lib.mp_conv_takes_sums(self.table, address(packed.data)))

    def call(self, function: str, x: Values, *rest: KernelArgument) -> Call:
        """Implement `Kernels.call`."""
        return _NativeCall(getattr(lib, f"mp_{function}"), (self.table, *_as_argument((x, *rest))), 1)

    def conv_call(self, packed: PackedConv, x: Values, fields: ConvFields) -> Call:
        """Implement `Kernels.conv_call`."""
        data = address(packed.data)
        args = ffi.new(_CONV_ARGS, dict(zip(fields, _as_argument(fields.values()), strict=True)))
        args.shape, args.precision, args.packed = (
            cast("ShapePointer", packed.c_shape)[0],
            PRECISION_CODE[packed.precision.name],
            data,
        )
        setattr(args, "in", address(x.array if type(x) is HostStorage else array_of(x)))
        scratch_bytes = lib.mp_conv_scratch_bytes(self.table, data, "pool_h" in fields, fields["threads"])
        # A struct does not keep alive what it points to.
        return _ConvCall(self.table, args, (packed, x, fields), scratch_bytes)
