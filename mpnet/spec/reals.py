"""Reals of the stored types as NumPy's float32, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]


def widened(x: NDArray[Any]) -> F32:
    """Reals of a stored type, by their dtype, as float32: exact. Any shape; float32 comes back as it is."""
    return x.astype(np.float32, copy=False)


def narrowed(x: F32, dtype: np.dtype[Any]) -> NDArray[Any]:
    """float32 of any shape as the reals of a stored type of this dtype: to nearest even, beyond the largest infinite."""
    with np.errstate(over="ignore"):
        return x.astype(dtype)
