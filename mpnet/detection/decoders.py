# SPDX-License-Identifier: MIT
"""Heads of the programs that networks are imported from, made ready to be decoded like a [yolo] layer's.

csrc/detect/imported.c has the formulas.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpnet.kernels.core import constant
from mpnet.kernels.heads import ready_imported
from mpnet.model.heads import DecodedSpec

Floats = NDArray[np.float32]
_DECODER: dict[str, int] = {
    "yolov5": constant("MP_YOLOV5"),
    "yolov8": constant("MP_YOLOV8"),
    "yolov8_obb": constant("MP_YOLOV8_OBB"),
    "rtmdet": constant("MP_RTMDET"),
    "picodet": constant("MP_PICODET"),
    "yolox": constant("MP_YOLOX"),
    "ssd": constant("MP_SSD"),
    "none": constant("MP_NOT_DECODED"),
}


@dataclass(frozen=True)
class ImportedHead:
    """layer: the section. net_width, net_height: network input, pixels."""

    layer: DecodedSpec
    net_width: int
    net_height: int

    @property
    def coordinates(self) -> int:
        """Return new_coords of mp_yolo_head for what `ready` gives."""
        return 2

    @property
    def anchors(self) -> tuple[tuple[float, float], ...]:
        """Return what sizes of ready boxes are multiples of, in pixels: one per box of a cell."""
        count = len(self.layer.mask) or 1
        return ((float(self.net_width), float(self.net_height)),) * count

    def channels(self, anchors: int) -> int:
        """Return the channels that the head's tensor has."""
        return self.layer.head_channels or self.layer.in_shape[2]

    @property
    def decoding(self) -> dict[str, object]:
        """Return the fields of mp_decoding."""
        layer = self.layer
        return {
            "decoder": _DECODER[layer.decoder],
            "reg_max": layer.reg_max,
            "coords": layer.coords,
            "softmax": int(layer.softmax),
            "yx": int(layer.yx),
            "linear": int(layer.linear),
            "variances": list(layer.variances),
        }


def ready(tensor: Floats, head: ImportedHead) -> Floats:
    """Turn (n, grid height, grid width, c) into (n, grid height, grid width, boxes * (5 + classes)).

    x, y are in cells from the cell's corner, w, h relative to the network's input, objectness and classes probabilities.

    """
    n, rows, columns, _ = tensor.shape
    boxes, classes = len(head.anchors), head.layer.classes
    out = np.zeros((n, rows, columns, boxes * (5 + classes)), np.float32)
    if head.layer.decoder == "none":
        return out
    fields = {
        "how": head.decoding,
        "grid_h": rows,
        "grid_w": columns,
        "boxes": boxes,
        "classes": classes,
        "net_w": head.net_width,
        "net_h": head.net_height,
    }
    anchors, values = np.array(head.layer.head_anchors, np.float32), np.ascontiguousarray(tensor, np.float32)
    ready_imported(fields, anchors if anchors.size else None, values, n * rows * columns, out)
    return out
