# SPDX-License-Identifier: MIT
"""Weights packed for the ISA level of another machine."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np

from mpnet.arrays import Array
from mpnet.errors import ConfigError, KernelError
from mpnet.kernels._core import ffi, lib
from mpnet.kernels.core import address, call
from mpnet.kernels.interface import ConvShape
from mpnet.kernels.memory import aligned
from mpnet.kernels.native import PRECISION_CODE
from mpnet.model.precision import Precision


def pack_for(level: str, shape: ConvShape, precision: Precision, weights: Array) -> bytes:
    """Return the packed weights of a convolution, as mp_pack_conv of that level gives them.

    weights: float32, or int8 codes. Raises: ConfigError for an unknown level, KernelError for weights that cannot be packed.
    """
    table = lib.mp_packing_table(level.encode())
    if table == ffi.NULL:
        raise ConfigError(f"--packed {level}: unknown ISA level; known are {', '.join(packing_levels())}")
    c_shape = ffi.new("mp_conv_shape *", [int(value) for value in astuple(shape)])
    code, contiguous = PRECISION_CODE[precision.name], np.ascontiguousarray(weights)
    size = lib.mp_pack_bytes(table, c_shape, code, address(contiguous))
    if not size:
        raise KernelError(f"convolution {shape} in {precision.name} cannot be packed for {level}")
    packed = aligned(size)
    call("packing", lib.mp_pack_conv, table, c_shape, code, contiguous, packed, size)
    return packed.tobytes()


def packing_levels() -> list[str]:
    """Return the names of all levels, of any architecture, that weights can be packed for."""
    levels: list[str] = []
    while name := ffi.string(lib.mp_table_name(lib.mp_packing_table_at(len(levels)))).decode():
        levels.append(name)
    return levels
