# SPDX-License-Identifier: MIT
"""Heads that are no [yolo] layers, made ready to be decoded like one. Most of the work is done in csrc/detect/ready.c."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpnet.kernels import heads as kernels
from mpnet.kernels.core import exponentials
from mpnet.model.tree import Tree

Floats = NDArray[np.float32]
POINTS: tuple[str, ...] = ("center", "left_top", "right_bottom")
CLASSES_BY: tuple[str, ...] = ("logistic", "nothing", "softmax", "tree")


@dataclass(frozen=True)
class OtherHead:
    """The differences of a head from [yolo].

    kind:       region: x, y logistic, anchors in pixels here; gaussian: with uncertainties; detection: YOLOv1's, flat.
    classes:    that its tensor holds for each anchor (detection: cell).
    classes_by: how they become probabilities, of CLASSES_BY. tree, map: see RegionSpec.
    point:      of POINTS: which point of a box x and y are. background: every box counts as an object.
    side, boxes, root: of detection, see DetectionSpec.
    """

    kind: str
    classes: int
    classes_by: str = "logistic"
    tree: Tree | None = None
    map: tuple[int, ...] = ()
    point: str = "center"
    background: bool = False
    side: int = 0
    boxes: int = 0
    root: bool = False

    @property
    def entries(self) -> int:
        """Return the values of an anchor before its classes."""
        return 9 if self.kind == "gaussian" else 5

    @property
    def coordinates(self) -> int:
        """Return new_coords of mp_yolo_head for what `ready_head` gives."""
        return 1 if self.kind == "detection" else 2

    def channels(self, anchors: int) -> int:
        """Return the channels that the head's tensor has; of a [detection] layer, all its values."""
        if self.kind == "detection":
            return self.side * self.side * (self.classes + 5 * self.boxes)
        return anchors * (self.entries + self.classes)


class HeadContext(NamedTuple):
    """The surroundings of a head that make it ready: the network's input in pixels, [yolo]'s stretch, scores wanted."""

    net_width: int
    net_height: int
    scale_x_y: float
    classes: int
    confidence: float


def ready_head(tensor: Floats, head: OtherHead, anchors: Floats, context: HeadContext) -> Floats:
    """Return (n, grid height, grid width, anchors * (5 + classes)) for mp_decode_yolo with `head.coordinates`."""
    if head.kind == "detection":
        return _detection(tensor, head)
    n, grid_h, grid_w, _ = tensor.shape
    out = np.empty((n, grid_h, grid_w, len(anchors) * (5 + context.classes)), np.float32)
    tree = head.tree
    arrays = {
        "starts": None if tree is None else np.array(tree.starts, np.int32),
        "parents": None if tree is None else np.array(tree.parents, np.int32),
        "map": np.array(head.map, np.int32) if head.map else None,
    }
    fields = {
        "gaussian": int(head.kind == "gaussian"),
        "grid_h": grid_h,
        "grid_w": grid_w,
        "anchors": len(anchors),
        "entries": head.entries,
        "out_classes": context.classes,
        "classes_by": CLASSES_BY.index(head.classes_by),
        "point": POINTS.index(head.point),
        "background": int(head.background),
        "net_w": context.net_width,
        "net_h": context.net_height,
        "scale_x_y": context.scale_x_y,
        "threshold": context.confidence,
        "groups": 0 if tree is None else len(tree.starts) - 1,
    }
    kernels.ready_head(fields, arrays, anchors, head.classes, tensor, n * grid_h * grid_w, out)
    return out


def _detection(tensor: Floats, head: OtherHead) -> Floats:
    """Rearrange rows of classes, of objectness, of boxes -> cells of [boxes][x, y, w, h, objectness, classes]."""
    n, cells, boxes = len(tensor), head.side * head.side, head.boxes
    # What a layer makes without a connected one before it lies in another order.
    flat = tensor.reshape(n, -1) if tensor.shape[1:3] == (1, 1) else tensor.transpose(0, 3, 1, 2).reshape(n, -1)
    classes = flat[:, : cells * head.classes].reshape(n, cells, 1, head.classes)
    if head.classes_by == "softmax":
        exponents = exponentials(classes - classes.max(axis=3, keepdims=True)).astype(np.float64)
        classes = exponents / np.add.accumulate(exponents, axis=3)[..., -1:]
    box_values = flat[:, cells * head.classes :]
    objectness = box_values[:, : cells * boxes].reshape(n, cells, boxes, 1)
    boxes_of_cells = box_values[:, cells * boxes :].reshape(n, cells, boxes, 4).copy()
    if not head.root:
        # Decoding squares them.
        boxes_of_cells[..., 2:] = np.sqrt(np.maximum(boxes_of_cells[..., 2:], 0))
    joined = np.concatenate([boxes_of_cells, objectness, np.broadcast_to(classes, (n, cells, boxes, head.classes))], axis=3)
    return np.ascontiguousarray(joined.reshape(n, head.side, head.side, -1), np.float32)
