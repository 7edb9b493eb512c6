# SPDX-License-Identifier: MIT
"""The training loss on Darknet's own box decoding, and the decoding itself."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from mpnet.demo.scenes import SIZE

POSITIVE_IOU = 0.45  # of width and height: an anchor this close to a box learns it, besides the best one
IGNORE_IOU = 0.6  # a prediction this close to a box is not taught to be background
BOX_GAIN, OBJECT_GAIN, CLASS_GAIN = 4.0, 1.0, 1.0


def decode(raw: torch.Tensor, anchors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return boxes (n, 3, h, w, 4) as x0 y0 x1 y1 in pixels and logits (n, 3, h, w, 1 + classes).

    bx = (column + sigmoid(x)) * stride, bw = exp(w) * anchor width, as Darknet.
    """
    n, channels, height, width = raw.shape
    raw = raw.reshape(n, 3, channels // 3, height, width).permute(0, 1, 3, 4, 2)
    columns = torch.arange(width, dtype=raw.dtype)
    rows = torch.arange(height, dtype=raw.dtype)[:, None]
    cx = (torch.sigmoid(raw[..., 0]) + columns) * (SIZE / width)
    cy = (torch.sigmoid(raw[..., 1]) + rows) * (SIZE / height)
    half_size = torch.exp(raw[..., 2:4].clamp(max=4)) * anchors[None, :, None, None, :] / 2
    boxes = torch.stack((cx - half_size[..., 0], cy - half_size[..., 1], cx + half_size[..., 0], cy + half_size[..., 1]), -1)
    return boxes, raw[..., 4:]


def _iou(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    width = (torch.minimum(a[..., 2], b[..., 2]) - torch.maximum(a[..., 0], b[..., 0])).clamp(min=0)
    height = (torch.minimum(a[..., 3], b[..., 3]) - torch.maximum(a[..., 1], b[..., 1])).clamp(min=0)
    inter = width * height
    area_a = (a[..., 2] - a[..., 0]) * (a[..., 3] - a[..., 1])
    area_b = (b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1])
    return inter / (area_a + area_b - inter + 1e-7)


def _ciou(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return IoU and complete IoU (Zheng et al. 2020) of matching rows."""
    iou = _iou(a, b)
    cw = torch.maximum(a[:, 2], b[:, 2]) - torch.minimum(a[:, 0], b[:, 0])
    ch = torch.maximum(a[:, 3], b[:, 3]) - torch.minimum(a[:, 1], b[:, 1])
    dx, dy = a[:, 0] + a[:, 2] - b[:, 0] - b[:, 2], a[:, 1] + a[:, 3] - b[:, 1] - b[:, 3]
    distance = (dx * dx + dy * dy) / 4 / (cw * cw + ch * ch + 1e-7)
    slant_a = torch.atan((a[:, 2] - a[:, 0]) / (a[:, 3] - a[:, 1] + 1e-7))
    slant_b = torch.atan((b[:, 2] - b[:, 0]) / (b[:, 3] - b[:, 1] + 1e-7))
    v = 0.405284735 * (slant_a - slant_b) ** 2  # 4 / pi squared
    with torch.no_grad():
        alpha = v / (1 - iou + v + 1e-7)
    return iou, iou - distance - alpha * v


def detection_loss(
    maps: tuple[torch.Tensor, torch.Tensor], labels: torch.Tensor, anchors: torch.Tensor, masks: tuple[tuple[int, ...], ...]
) -> tuple[torch.Tensor, tuple[float, float, float]]:
    """Return the loss of a batch and its three parts (box, objectness, class).

    maps: raw detection maps; labels: (n, objects, 5), class -1 for none; anchors: (6, 2) pixels.
    """
    image, slot = torch.nonzero(labels[..., 0] >= 0, as_tuple=True)
    truth = labels[image, slot]
    size = truth[:, 3:5] - truth[:, 1:3]
    inter = torch.minimum(size[:, None], anchors[None]).prod(-1)
    overlap = inter / (size.prod(-1)[:, None] + anchors.prod(-1)[None] - inter)  # boxes x 6
    is_positive = overlap > POSITIVE_IOU
    is_positive[torch.arange(len(truth)), overlap.argmax(1)] = True
    positives = max(int(is_positive.sum()), 1)
    absent = labels[..., 0] < 0
    box_sum = object_sum = class_sum = labels.new_zeros(())
    for raw, mask in zip(maps, masks, strict=True):
        boxes, logits = decode(raw, anchors[list(mask)])
        n, _, height, width = boxes.shape[:4]
        with torch.no_grad():
            every = _iou(boxes.reshape(n, -1, 1, 4), labels[:, None, :, 1:5])
            every.masked_fill_(absent[:, None], 0)
            weight = (every.amax(-1) < IGNORE_IOU).to(raw.dtype).reshape(boxes.shape[:4])
        target = torch.zeros_like(weight)
        row, anchor = torch.nonzero(is_positive[:, list(mask)], as_tuple=True)
        if len(row):
            objects = truth[row]
            column = ((objects[:, 1] + objects[:, 3]) / 2 * width / SIZE).long().clamp(0, width - 1)
            line = ((objects[:, 2] + objects[:, 4]) / 2 * height / SIZE).long().clamp(0, height - 1)
            cells = (image[row], anchor, line, column)
            iou, ciou = _ciou(boxes[cells], objects[:, 1:5])
            box_sum = box_sum + (1 - ciou).sum()
            class_targets = F.one_hot(objects[:, 0].long(), logits.shape[-1] - 1).to(raw.dtype)
            class_sum = class_sum + F.binary_cross_entropy_with_logits(logits[cells][:, 1:], class_targets, reduction="sum")
            # Objectness learns how good the box is, so that better boxes rank higher.
            target[cells] = iou.detach().clamp(0, 1)
            weight[cells] = 1
        object_sum = object_sum + F.binary_cross_entropy_with_logits(logits[..., 0], target, weight, reduction="sum")
    terms = (box_sum / positives, object_sum / positives, class_sum / positives)
    total = BOX_GAIN * terms[0] + OBJECT_GAIN * terms[1] + CLASS_GAIN * terms[2]
    return total, (terms[0].item(), terms[1].item(), terms[2].item())
