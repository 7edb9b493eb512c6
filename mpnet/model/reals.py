# SPDX-License-Identifier: MIT
"""Reals of the stored types as NumPy's float32, and back: bfloat16, which NumPy lacks, is the upper half of a float's bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array, DType, RealArray
from mpnet.model.precision import BFLOAT16

F32 = NDArray[np.float32]


def widened(x: Array) -> F32:
    """Return the reals of a stored type, by their dtype, as float32: exact. Any shape; float32 comes back as it is."""
    if x.dtype == BFLOAT16.dtype:
        upper: F32 = (x.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return upper
    return x.astype(np.float32, copy=False)


def narrowed(x: RealArray, dtype: DType) -> Array:
    """Return float32 of any shape as the reals of a stored type of this dtype: to nearest even, beyond the largest infinite."""
    if dtype == BFLOAT16.dtype:
        bits = x.astype(np.float32, copy=False).view(np.uint32)
        rounded = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
        # Rounding would carry a NaN of many bits into the sign.
        kept = np.where(np.isnan(x), bits | np.uint32(0x400000), rounded)
        return np.asarray(kept >> np.uint32(16)).astype(dtype)
    with np.errstate(over="ignore"):
        return x.astype(dtype)
