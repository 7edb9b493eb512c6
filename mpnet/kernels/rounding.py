# SPDX-License-Identifier: MIT
"""Reals to whole numbers and to codes: what the oracle, the weights and the schemes have in common."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import KernelError
from mpnet.model.quantization import SCHEME_ROUNDINGS

F32 = NDArray[np.float32]
_f32 = np.float32


def round_to_integers(x: F32, rounding: str) -> F32:
    """Return x rounded to whole numbers by a named rule."""
    if rounding == "half_to_even":
        return np.rint(x)
    if rounding == "half_away":
        # The largest float32 below 0.5: adding 0.5 itself would lift 0.49999997 to 1. Exact for all finite x: from 2^23
        # on there is nothing to round, and the sum returns x.
        return np.trunc(x + np.copysign(np.nextafter(_f32(0.5), _f32(0)), x))
    if rounding == "truncate":
        return np.trunc(x)
    if rounding == "half_up":
        return np.floor(x + _f32(0.5))  # 0.49999997 becomes 1, as in TensorFlow
    raise KernelError(f"unknown rounding {rounding!r}; known are {', '.join(SCHEME_ROUNDINGS)}")


def quantized(
    x: F32, inv_scale: F32 | np.float32, zero_point: NDArray[np.int32] | np.int32, rounding: str, low: int, high: int
) -> NDArray[np.int32]:
    """Return clamp(round(x / scale) + zero_point, low, high), clamped before it is converted."""
    with np.errstate(over="ignore"):
        t = x * inv_scale
    t = np.minimum(np.maximum(t, (low - zero_point).astype(np.float32)), (high - zero_point).astype(np.float32))
    codes: NDArray[np.int32] = round_to_integers(t, rounding).astype(np.int32) + zero_point
    return codes
