# SPDX-License-Identifier: MIT
"""How far a network's heads are from those of fp32, as training sees it.

Where a Darknet head decodes a tensor, boxes count by their distance and objectness and classes by their divergence, in cells
that are likely to hold objects: most cells hold nothing, and detections come from the others. Scores of a classifier count by
their divergence, every other tensor by its squared distance over what its values vary by.
"""

from __future__ import annotations

from typing import Sequence

import torch
import torch.nn.functional as F

from mpnet.model.heads import YoloSpec
from mpnet.model.network import NetworkSpec
from mpnet.tuning.torch_operations import Tensor

_EVERY_CELL = 0.5
"""Of a cell's objectness that counts whatever its classes are."""
_LEAST = 1e-3
"""Weight of a cell from which on its box and its classes are looked at: few are, and the others cost a tenth of a step."""
_CENTRE, _PARTS = 16.0, 4.0
"""Weights of a centre's squared distance in cells, and of the sum over a head's likely cells."""


def head_loss(network: NetworkSpec, heads: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
    """Return the loss of heads (n, c, h, w) against those of fp32, one number."""
    total: Tensor = 0.0
    for index, head, target in zip(network.outputs, heads, targets, strict=True):
        layer = network.layers[index]
        if type(layer) is YoloSpec and not layer.new_coords:
            total = total + _yolo(layer, head, target)
        elif network.classifier is layer and network.task is not None and not isinstance(layer, YoloSpec):
            total = total + _classes(head.flatten(1), target.flatten(1))
        else:
            total = total + ((head - target) ** 2).mean() / target.var().clamp_min(1e-6)
    return total


def _divergence(logits: Tensor, probabilities: Tensor) -> Tensor:
    entropy = F.binary_cross_entropy(probabilities, probabilities, reduction="none")
    return F.binary_cross_entropy_with_logits(logits, probabilities, reduction="none") - entropy


def _yolo(layer: YoloSpec, head: Tensor, target: Tensor) -> Tensor:
    count, _, height, width = head.shape
    shape = (count, len(layer.mask), -1, height, width)
    head, target = head.reshape(shape), target.reshape(shape)
    objects, classes = torch.sigmoid(target[:, :, 4]), torch.sigmoid(target[:, :, 5:])
    likely = (_PARTS * objects * classes.amax(2)).clamp_max(1) + _EVERY_CELL * objects
    cells = (likely.sum() + 1e-3) / _PARTS
    chosen = (likely > _LEAST).nonzero(as_tuple=True)
    weights, classes = likely[chosen], classes.movedim(2, -1)[chosen]
    given, wanted = head.movedim(2, -1)[chosen], target.movedim(2, -1)[chosen]
    centres = ((torch.sigmoid(given[:, :2]) - torch.sigmoid(wanted[:, :2])) ** 2).sum(1)
    sizes = ((given[:, 2:4] - wanted[:, 2:4]) ** 2).sum(1)
    parts = _CENTRE * centres + sizes + _divergence(given[:, 5:], classes).sum(1)
    return ((weights * parts).sum() + _divergence(head[:, :, 4], objects).sum()) / cells


def _classes(scores: Tensor, target: Tensor) -> Tensor:
    """Return the divergence of scores, which are probabilities where they add up to 1, else logits."""
    are_shares = bool((target >= 0).all()) and bool(((target.sum(1) - 1).abs() < 1e-3).all())
    wanted = target if are_shares else torch.softmax(target, 1)
    given = scores.clamp_min(1e-9).log() if are_shares else torch.log_softmax(scores, 1)
    return F.kl_div(given, wanted, reduction="batchmean")
