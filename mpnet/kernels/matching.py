# SPDX-License-Identifier: MIT
"""Detections and labels matched, averages over them, tensors compared: csrc/detect/ in C. Arrays are C-contiguous.

Arguments are those of the C function of the same name, in its order, which csrc/detect/mp_detect.h explains.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.kernels._core import lib
from mpnet.kernels.core import CArgument, call


def match_coco(*arguments: CArgument) -> None:
    """Match detections with labels as COCO does. Raises: KernelError."""
    call("matching", lib.mp_match_coco, *arguments)


def order_by_category(*arguments: CArgument) -> None:
    """Order detections by category, then falling score. Raises: KernelError."""
    call("matching", lib.mp_order_by_category, *arguments)


def best_overlap(*arguments: CArgument) -> None:
    """Find for each detection the label that it overlaps best. Raises: KernelError."""
    call("matching", lib.mp_best_overlap, *arguments)


def average_precision(*arguments: CArgument) -> None:
    """Compute 101-point average precision and recall. Raises: KernelError."""
    call("average precision", lib.mp_average_precision, *arguments)


def squared_difference(
    images: int, values: int, a: NDArray[np.float32], b: NDArray[np.float32] | None, sums: NDArray[np.float64]
) -> None:
    """Fill sums (images,) with the sum of squares of a, or of a - b, over the values of each image. Raises: KernelError."""
    call("comparing tensors: the C core", lib.mp_squared_difference, images, values, a, b, sums)
