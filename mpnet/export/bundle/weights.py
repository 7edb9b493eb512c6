# SPDX-License-Identifier: MIT
"""Weights as a bundle holds them: docs/bundle.md."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.export.weights import pack_bits, split_blocks
from mpnet.model.precision import Precision
from mpnet.model.reals import narrowed


def as_stored(weights: NDArray[Any], precision: Precision) -> bytes:
    """Return the weights (out, in / groups, size, size) in as many bits as their precision has; reals as float32 come in."""
    if not precision.carries_scale:
        return narrowed(weights, precision.stored.dtype).tobytes()
    bits = precision.weight_bits
    if not precision.is_narrow:
        return weights.tobytes()
    codes, multipliers = split_blocks(weights, bits)
    plain = np.ascontiguousarray(codes.reshape(len(weights), -1, *weights.shape[2:])[:, : weights.shape[1]])
    if (multipliers == 1).all():
        return pack_bits(plain, bits)
    # One for each block, behind those of the tap before: as mprun's tables want them.
    steps = np.ascontiguousarray(multipliers[:, :, 0].transpose(0, 2, 3, 1))
    return pack_bits(plain, bits) + pack_bits(steps - np.int8(1), 8 - bits)
