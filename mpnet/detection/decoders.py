"""Heads of the programs that networks are imported from, made ready to be decoded like a [yolo] layer's.

One formula each, with s the logistic function and cells counted from 0; x and y of a centre are given relative to its cell:

    yolov5  x = 2 s(x) - 0.5, w = (2 s(w))^2 anchor; score = s(objectness) s(class)
    yolov8  distance = mean of the bins 0 .. reg_max - 1 by softmax, in cells; score = s(class)
    yolox   x = x, w = e^w cells; score = s(objectness) s(class)
    ssd     x = 0.5 + x v0 w_a / cell, w = e^(w v2) w_a (linear: w v2 w_a); score = softmax with background, or s(class)

Sums go value by value in a fixed order: equal bits on every CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

import numpy as np
from numpy.typing import NDArray

from mpnet.kernels.core import exponentials
from mpnet.spec.heads import DecodedSpec

Floats = NDArray[np.float32]
_HALF, _TWO = np.float32(0.5), np.float32(2)


@dataclass(frozen=True)
class ImportedHead:
    """layer: the section. net_width, net_height: network input, pixels."""

    layer: DecodedSpec
    net_width: int
    net_height: int

    @property
    def coordinates(self) -> int:
        """new_coords of mp_yolo_head for what is ready."""
        return 2

    @property
    def anchors(self) -> tuple[tuple[float, float], ...]:
        """What sizes of ready boxes are multiples of, in pixels: one per box of a cell."""
        count = len(self.layer.mask) or 1
        return ((float(self.net_width), float(self.net_height)),) * count

    def channels(self, anchors: int) -> int:
        """Of its tensor."""
        return self.layer.head_channels or self.layer.in_shape[2]


def ready(tensor: Floats, head: ImportedHead) -> Floats:
    """(n, grid height, grid width, c) -> (n, grid height, grid width, boxes * (5 + classes)): x, y in cells from the cell's
    corner, w, h relative to the network's input, objectness and classes as probabilities."""
    n, rows, columns, _ = tensor.shape
    with np.errstate(over="ignore", invalid="ignore"):
        parts = _READY[head.layer.decoder](tensor.reshape(n, rows, columns, -1), head)
    boxes = len(head.anchors)
    return np.ascontiguousarray(np.concatenate(parts, axis=-1).reshape(n, rows, columns, boxes * (5 + head.layer.classes)))


def _logistic(x: Floats) -> Floats:
    result: Floats = np.float32(1) / (np.float32(1) + exponentials(-x))
    return result


def _cell(tensor: Floats, head: ImportedHead) -> Floats:
    """(width, height) of a cell, relative to the network's input."""
    relative: Floats = np.float32(1) / np.array([tensor.shape[2], tensor.shape[1]], np.float32)
    return relative


def _yolov5(x: Floats, head: ImportedHead) -> list[Floats]:
    layer = head.layer
    values = _logistic(x.reshape(*x.shape[:3], len(layer.mask), 5 + layer.classes))
    relative = np.array(layer.head_anchors, np.float32) / np.array([head.net_width, head.net_height], np.float32)
    size = _TWO * values[..., 2:4]
    return [_TWO * values[..., :2] - _HALF, size * size * relative, values[..., 4:]]


def _yolov8(x: Floats, head: ImportedHead) -> list[Floats]:
    bins = head.layer.reg_max
    logits = x[..., : 4 * bins].reshape(*x.shape[:3], 4, bins)
    shares = exponentials(logits - logits.max(axis=-1, keepdims=True))
    total, weighted = shares[..., 0].copy(), np.zeros(shares.shape[:-1], np.float32)
    for number in range(1, bins):
        total += shares[..., number]
        weighted += np.float32(number) * shares[..., number]
    distance = weighted / total
    near, far = distance[..., :2], distance[..., 2:]
    classes = _logistic(x[..., 4 * bins :])
    return [_HALF + (far - near) * _HALF, (near + far) * _cell(x, head), np.ones_like(classes[..., :1]), classes]


def _yolox(x: Floats, head: ImportedHead) -> list[Floats]:
    return [x[..., :2], exponentials(x[..., 2:4]) * _cell(x, head), _logistic(x[..., 4:])]


def _ssd(x: Floats, head: ImportedHead) -> list[Floats]:
    layer, boxes = head.layer, len(head.layer.mask)
    split = boxes * layer.coords
    raw = x[..., :split].reshape(*x.shape[:3], boxes, layer.coords)[..., :4]
    raw = (raw[..., [1, 0, 3, 2]] if layer.yx else raw) * np.array(layer.variances, np.float32)
    relative = np.array(layer.head_anchors, np.float32) / np.array([head.net_width, head.net_height], np.float32)
    size = (raw[..., 2:] if layer.linear else exponentials(raw[..., 2:])) * relative
    scores = x[..., split:].reshape(*x.shape[:3], boxes, -1)
    if layer.softmax:
        parts = exponentials(scores - scores.max(axis=-1, keepdims=True))
        total = np.add.accumulate(parts.astype(np.float64), axis=-1)[..., -1:]
        scores = (parts[..., 1:] / total).astype(np.float32)
    else:
        scores = _logistic(scores)
    return [_HALF + raw[..., :2] * relative / _cell(x, head), size, np.ones_like(scores[..., :1]), scores]


def _none(x: Floats, head: ImportedHead) -> list[Floats]:
    return [np.zeros((*x.shape[:3], 5 + head.layer.classes), np.float32)]


_READY: dict[str, Callable[[Floats, ImportedHead], list[Floats]]] = {
    "yolov5": _yolov5, "yolov8": _yolov8, "yolox": _yolox, "ssd": _ssd, "none": _none,
}
