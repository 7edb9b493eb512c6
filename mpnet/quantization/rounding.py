"""Rounding rules on float32 arrays, stated so that every CPU computes the same bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import PrecisionError

# Order = code in csrc/quantize/mp_quantize.h.
ROUNDINGS: tuple[str, ...] = ("half_to_even", "half_away", "truncate")

# The largest float32 below 0.5. Adding 0.5 itself would lift 0.49999997 to 1.
_BELOW_HALF = np.float32(np.nextafter(np.float32(0.5), np.float32(0)))


def round_float32(x: NDArray[np.float32], rounding: str) -> NDArray[np.float32]:
    """x rounded to whole numbers, still float32. Raises PrecisionError for an unknown rule."""
    if rounding == "half_to_even":
        return np.rint(x)
    if rounding == "half_away":
        # Exact for all finite x: from 2^23 on there is nothing to round, and the sum returns x.
        return np.trunc(x + np.copysign(_BELOW_HALF, x))
    if rounding == "truncate":
        return np.trunc(x)
    raise PrecisionError(f"unknown rounding {rounding!r}; known are {', '.join(ROUNDINGS)}")
