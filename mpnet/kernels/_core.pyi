# SPDX-License-Identifier: MIT
# What Python reads of the extension that cffi builds. The headers of csrc/ declare its functions and structs; here stand the
# values of C that have parts which Python looks at, and functions whose result is no number.

from collections.abc import Callable, Sequence
from typing import Generic, Literal, SupportsBytes, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

_Value = TypeVar("_Value", bound=CData, covariant=True)
_Buffer = bytes | bytearray | memoryview | NDArray[np.generic]

class CData:
    # A pointer, an array or a struct. Added to a pointer, a number counts elements.
    def __add__(self, elements: int, /) -> CData: ...

class IntegerPointer(CData):
    def __getitem__(self, index: int, /) -> int: ...

class ShapePointer(CData):
    def __getitem__(self, index: int, /) -> CData: ...

class ConvArgs(CData):
    # mp_conv_args of csrc/mpnet.h; its field `in` is a keyword of Python.
    shape: CData
    precision: int
    packed: CData
    scratch: CData
    scratch_bytes: int

class Geometry(CData):
    # mp_geometry of csrc/image/.
    width: int
    height: int
    relative: Sequence[float]

class CType(Generic[_Value]):
    # What `typeof` returns; of functions their arguments, of structs their fields by name.
    args: Sequence[CType[CData]]
    fields: Sequence[tuple[str, object]]

class _FFI:
    NULL: CData

    @overload
    def typeof(self, declaration: Literal["mp_conv_args *"], /) -> CType[ConvArgs]: ...
    @overload
    def typeof(self, declaration: Literal["size_t *"], /) -> CType[IntegerPointer]: ...
    @overload
    def typeof(self, declaration: str, /) -> CType[CData]: ...
    @overload
    def new(self, kind: CType[_Value], content: object = ..., /) -> _Value: ...
    @overload
    def new(self, kind: Literal["mp_conv_shape *"], content: object = ..., /) -> ShapePointer: ...
    @overload
    def new(self, kind: Literal["mp_geometry *"], content: object = ..., /) -> Geometry: ...
    @overload
    def new(self, kind: Literal["int32_t *", "int64_t *"], content: object = ..., /) -> IntegerPointer: ...
    @overload
    def new(self, kind: str, content: object = ..., /) -> CData: ...
    @overload
    def from_buffer(self, kind: CType[CData] | str, values: _Buffer, /) -> CData: ...
    @overload
    def from_buffer(self, values: _Buffer, /) -> CData: ...
    def buffer(self, value: CData, size_bytes: int = ..., /) -> SupportsBytes: ...
    def cast(self, kind: str, value: int, /) -> CData: ...
    def sizeof(self, kind: str, /) -> int: ...
    def string(self, value: CData, /) -> bytes: ...

class _Lib:
    MP_OK: int
    MP_BAD_ARGUMENT: int
    MP_BAD_SHAPE: int
    MP_OVERFLOW: int
    MP_UNSUPPORTED: int
    MP_NONFINITE: int
    MP_NMS_BLOCK: int
    MP_JPEG_NO_END: int
    MP_JPEG_EXTRA_BYTES: int
    MP_PACK_VERSION: int

    def mp_compiler(self) -> CData: ...
    def mp_cpu_feature(self, index: int, /) -> CData: ...
    def mp_packing_table(self, level: bytes, /) -> CData: ...
    def mp_packing_table_at(self, index: int, /) -> CData: ...
    def mp_table_at(self, index: int, /) -> CData: ...
    def mp_table_name(self, table: CData, /) -> CData: ...
    # All others return a number, most of them an mp_status.
    def __getattr__(self, function: str, /) -> Callable[..., int]: ...

ffi: _FFI
lib: _Lib
