# SPDX-License-Identifier: MIT
"""Ranges to scales, and the codes of TensorFlow's modes: csrc/quantize/ in C.

Parameters travel as a NumPy array of PARAMS, one row per image, laid out as C's mp_quant_params.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array, CodeArray
from mpnet.kernels._core import ffi, lib
from mpnet.kernels.core import c_arguments

if TYPE_CHECKING:
    from mpnet.kernels._core import CData, IntegerPointer

INTEGER_PARAMS = ("zero_point", "low", "high")
REAL_PARAMS = ("scale", "inv_scale", "offset", "range_min", "range_max")
PARAMS = np.dtype(
    [(name, np.int32) for name in ("mode", "rounding", *INTEGER_PARAMS)] + [(name, np.float32) for name in REAL_PARAMS]
)
ParamsArray: TypeAlias = NDArray[np.void]
"""Records of PARAMS."""

_SCHEME = ffi.typeof("mp_activation_scheme *")
_RANGES = ffi.typeof("float[]")
_PARAMS = ffi.typeof("mp_quant_params[]")
_IMAGE = ffi.typeof("size_t *")


class CScheme(NamedTuple):
    """An activation scheme as mp_activation_scheme has it, in the order of its fields: mode and rounding by number."""

    mode: int
    rounding: int
    narrow_range: int
    ensure_minimum_range: float
    bits: int


def scale_call(
    ranges: Array, params: Array, scheme: CScheme
) -> tuple[Callable[..., int], tuple[CData, int, CData, CData, IntegerPointer]]:
    """Return mp_ranges_to_params, which fills params (n,) of PARAMS from float32 ranges (n, 2), and its arguments.

    They keep both arrays, C-contiguous, alive. The last receives the number of the image that it cannot scale.
    """
    words = ffi.new(_SCHEME, scheme)
    arguments = ffi.from_buffer(_RANGES, ranges), len(ranges), words, _address(params), ffi.new(_IMAGE)
    return lib.mp_ranges_to_params, arguments


def ranges_to_params(ranges: NDArray[np.float32], params: ParamsArray, scheme: CScheme) -> tuple[int, int]:
    """Fill params (n,) from ranges (n, 2). Returns the status, and the image that cannot be scaled where it is not MP_OK."""
    function, arguments = scale_call(ranges, params, scheme)
    return int(function(*arguments)), int(arguments[-1][0])


def tf_quantize(x: NDArray[np.float32], codes: CodeArray, params: ParamsArray, threads: int) -> int:
    """Fill codes (n, ...) from reals x by a mode of TensorFlow. Returns the status."""
    counts = len(x), x.size // max(len(x), 1)
    return int(lib.mp_tf_quantize(*c_arguments(x, codes, *counts), _address(params), threads))


def tf_dequantize(codes: CodeArray, reals: NDArray[np.float32], params: ParamsArray, threads: int) -> int:
    """Fill reals from codes (n, ...) by TensorFlow's own order of operations. Returns the status."""
    counts = len(codes), codes.size // max(len(codes), 1)
    return int(lib.mp_tf_dequantize(*c_arguments(codes, reals, *counts), _address(params), threads))


def _address(params: Array) -> CData:
    return ffi.from_buffer(_PARAMS, params)
