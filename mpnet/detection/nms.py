# SPDX-License-Identifier: MIT
"""Non-maximum suppression per class over the heads of a network. The work is done in csrc/detect/nms.c."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.data.detections import Detections
from mpnet.detection.decode import Candidates
from mpnet.errors import ConfigError, DataError
from mpnet.kernels import heads as kernels
from mpnet.kernels.core import constant

# The cfg's nms_kind -> kernel kind. AlexeyAB's greedynms always uses the exponent 0.6, whatever beta_nms says.
KINDS: dict[str, int] = {
    "default": constant("MP_NMS_IOU"),
    "greedynms": constant("MP_NMS_DISTANCE"),
    "diounms": constant("MP_NMS_DISTANCE"),
}
GREEDY_BETA = 0.6


@dataclass(frozen=True)
class NmsOptions:
    """kind: 'default' (IoU), 'greedynms' (IoU - (d2 / c2)^0.6) or 'diounms' (the same with exponent `beta`).

    threshold: a box goes when its overlap with a better one of its class is larger; in [0, 1].
    """

    kind: str = "default"
    threshold: float = 0.45
    beta: float = GREEDY_BETA

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"detection.nms_kind: unknown kind {self.kind!r}; known are {', '.join(KINDS)}")
        if not 0 <= self.threshold <= 1:
            raise ConfigError(f"detection.nms: {self.threshold} is outside [0, 1]")
        if not 0 < self.beta <= 10:
            raise ConfigError(f"beta_nms: {self.beta} is outside (0, 10]")


def suppress(heads: Sequence[Candidates], sizes: NDArray[np.float32], options: NmsOptions | None = None) -> Detections:
    """Join the heads' candidates and keep, per image and class, those that no better one overlaps too much.

    sizes:  float32 (images, 2), width and height of the images in pixels.
    Result: boxes in pixels, not clipped; equal scores in the order of heads, cells and anchors.
    Raises: DataError when the heads have different images; ConfigError for no head or more than 16.
    """
    choice = options or NmsOptions()
    if not 1 <= len(heads) <= 16:
        raise ConfigError(f"suppression joins 1 to 16 heads, not {len(heads)}")
    images = heads[0].image_count
    if any(head.image_count != images for head in heads) or sizes.shape != (images, 2):
        raise DataError(
            f"heads and image sizes are of different sets of images ({images} and "
            f"{[head.image_count for head in heads[1:]]}, {len(sizes)} sizes)"
        )
    wh = np.ascontiguousarray(sizes, dtype=np.float32)
    beta = GREEDY_BETA if choice.kind == "greedynms" else choice.beta
    boxes = [(head.offsets, head.category, head.score, head.box) for head in heads]
    offsets, category, score, box = kernels.suppress(boxes, KINDS[choice.kind], choice.threshold, beta, wh)
    index = np.repeat(np.arange(images, dtype=np.int32), np.diff(offsets))
    return Detections(images, index, category, score, box)
