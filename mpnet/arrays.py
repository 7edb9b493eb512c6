# SPDX-License-Identifier: MIT
"""Names of NumPy arrays by the type of their elements, of any shape."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
"""Elements whose type only the dtype says: the array is handed on, or what reads it asks."""
DType = np.dtype[np.generic]
"""The type of such elements."""
FloatArray = NDArray[np.float32]
RealArray = NDArray[np.floating]
IntegerArray = NDArray[np.integer]
CodeArray = NDArray[np.int8 | np.int16]
"""Codes, as `mpnet.model.precision` stores them."""
StoredArray = NDArray[np.float32 | np.float16 | np.uint16 | np.int8 | np.int16]
"""A tensor of one of the stored types of `mpnet.model.precision`: reals (bfloat16 as the bits of uint16) or codes."""
