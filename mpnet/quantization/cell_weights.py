# SPDX-License-Identifier: MIT
"""The weights of a detection head's cells where its convolution learns: as much as an object is likely there.

Nine cells in ten hold nothing. A convolution that learns from all alike is good at saying nothing; detections come from others.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.kernels.core import exponentials

MOST = 256
"""The weight of a cell that surely holds an object; of one that surely does not: 1. It keeps false objects away."""


def cell_weights(head: NDArray[np.float32], anchors: int, objectness: int, logistic: bool) -> NDArray[np.float64]:
    """Return (n, h, w) whole numbers from 1 to MOST, by the likeliest anchor of each cell.

    head: (n, h, w, c), the tensor that enters the head in fp32. objectness: its place among an anchor's values.
    logistic: whether the convolution made it a probability already.
    """
    likeliest = head.reshape(*head.shape[:3], anchors, -1)[..., objectness].max(axis=3)
    probability = likeliest if logistic else np.float32(1) / (np.float32(1) + exponentials(-likeliest))
    return np.asarray(1 + np.rint(np.clip(probability, 0, 1) * np.float32(MOST - 1)), np.float64)
