# SPDX-License-Identifier: MIT
"""The box decoder of SSD, tried on the nodes behind the layers: priors, variances and what becomes of the background."""

from __future__ import annotations

from itertools import product
from typing import Literal

import numpy as np

from mpnet.importing.graph import Node
from mpnet.importing.heads import Head
from mpnet.importing.layer_graph import LayerOperation
from mpnet.importing.passes.box_decoders import (
    DecodingTrial,
    Doubles,
    FoundHeads,
    Keys,
    Level,
    compute_logistic,
    describe_anchors,
    is_close,
)

_USUAL_VARIANCES = (0.1, 0.1, 0.2, 0.2)
# e to more is no size of a box.
_MAX_LOGARITHM = 80.0
_ALMOST = 1e-2
SsdScores = Literal["softmax", "logistic", "logistic with background"]


def try_ssd(trial: DecodingTrial) -> FoundHeads:
    """Try SSD: two tensors a level, boxes and classes.

    Boxes come by priors in the middle of cells, in corners or centres, in shares of the image or pixels. Without a softmax, the
    first class may be a background that boxes are not scored for.
    """
    if any(len(level.tensors) != 2 for level in trial.levels):
        return None
    for flip in (False, True):
        levels = [
            Level(level.tensors[::-1], level.channels[::-1], level.rows, level.columns) if flip else level
            for level in trial.levels
        ]
        if any(level.channels[0] % 4 for level in levels):
            continue
        counts = [level.channels[0] // 4 for level in levels]
        if any(level.channels[1] % count for level, count in zip(levels, counts, strict=True)):
            continue
        classes = {level.channels[1] // count for level, count in zip(levels, counts, strict=True)}
        total = sum(level.cells * count for level, count in zip(levels, counts, strict=True))
        if len(classes) > 1:
            continue
        scores = _find_ssd_scores(trial, levels, counts, min(classes), total)
        if scores is None:
            continue
        for zero, table in trial.tables(total, 4):
            if table.shape[1] == 4 and (keys := _find_priors(trial, levels, counts, zero, table)):
                return _describe_ssd(trial, levels, counts, keys, scores, min(classes))
    return None


def _describe_ssd(
    trial: DecodingTrial, levels: list[Level], counts: list[int], keys: list[Keys], scores: SsdScores, classes: int
) -> FoundHeads:
    heads = []
    for level, count, level_keys in zip(levels, counts, keys, strict=True):
        boxes, class_tensor = level.tensors
        if scores == "logistic with background":
            class_tensor = _drop_background(trial, class_tensor, count, classes)
        heads.append(Head((boxes, class_tensor), "ssd", (*level_keys, ("softmax", str(int(scores == "softmax"))))))
    return heads, classes - int(scores != "logistic")


def _drop_background(trial: DecodingTrial, tensor: str, count: int, classes: int) -> str:
    """Append a selection of the channels that are not the first class of one of `count` boxes; return its result."""
    channels, *sides = trial.layers.shapes[tensor]
    order = np.arange(channels).reshape(count, classes)[:, 1:].ravel()
    output, shape = f"{tensor}/foreground", (order.size, sides[0], sides[1])
    values = {
        "weights": (order[:, None] == np.arange(channels)).astype(np.float32)[:, :, None, None],
        "weights_name": "",
        "bias": np.zeros(order.size, np.float32),
        "groups": 1,
        "strides": [1, 1],
        "dilations": [1, 1],
        "pads": [0] * 4,
        "order": None if trial.graph.quantization else order,
    }
    trial.layers.operations.append(LayerOperation("conv", [], [tensor], output, shape, values))
    trial.layers.shapes[output] = shape
    trial.graph.nodes.append(Node("mpnet.Channels", output, [tensor], [output], {"order": order.tolist()}))
    return output


def _stack_rows(trial: DecodingTrial, levels: list[Level], counts: list[int], tensor_index: int, width: int) -> Doubles:
    """Return the random values cell by cell: (all boxes, width)."""
    return np.concatenate(
        [
            trial.inputs[level.tensors[tensor_index]][0].reshape(-1, level.cells).T.reshape(level.cells * count, width)
            for level, count in zip(levels, counts, strict=True)
        ]
    ).astype(float)


def _find_ssd_scores(
    trial: DecodingTrial, levels: list[Level], counts: list[int], classes: int, total: int
) -> SsdScores | None:
    """Return how scores come from the values of classes; None where that is not found."""
    x = _stack_rows(trial, levels, counts, 1, classes)
    shares, logistic = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True), compute_logistic(x)
    tables = [table for _, table in trial.tables(total, max(1, classes - 1))]
    if any(is_close(trial, table, shares) for table in tables):
        return "softmax"
    if any(is_close(trial, table, logistic[:, 1:]) for table in tables) and classes > 1:
        return "logistic with background"
    return "logistic" if any(is_close(trial, table, logistic) for table in tables) else None


def _find_priors(
    trial: DecodingTrial, levels: list[Level], counts: list[int], zero: Doubles, table: Doubles
) -> list[Keys] | None:
    """Return the anchors of each level, and how boxes come from them, as keys."""
    raw, side = _stack_rows(trial, levels, counts, 0, 4), np.array(trial.image * 2, float)
    for corners, is_yx in product((True, False), (False, True)):
        order = [1, 0, 3, 2] if is_yx else [0, 1, 2, 3]
        x, of_zeros, of_values = raw[:, order], zero[:, order], table[:, order]
        if corners:
            of_zeros, of_values = _turn_to_centres(of_zeros), _turn_to_centres(of_values)
        for unit in (side, np.ones(4)):
            priors, boxes = of_zeros * unit, of_values * unit
            variances = _find_variances(x, priors, boxes)
            expected = np.concatenate(
                [
                    priors[:, :2] + x[:, :2] * variances[:2] * priors[:, 2:],
                    priors[:, 2:] * np.exp(np.minimum(x[:, 2:] * variances[2:], _MAX_LOGARITHM)),
                ],
                axis=1,
            )
            if is_close(trial, boxes, expected) and (anchors := _list_priors(trial, levels, counts, priors)) is not None:
                keys = [] if np.allclose(variances, _USUAL_VARIANCES, rtol=1e-6) else [("variances", _join_numbers(variances))]
                if is_yx:
                    keys.append(("yx", "1"))
                return [(*level_anchors, *keys) for level_anchors in anchors]
    return None


def _turn_to_centres(corners: Doubles) -> Doubles:
    return np.concatenate([(corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]], axis=1)


def _find_variances(x: Doubles, priors: Doubles, boxes: Doubles) -> Doubles:
    """Return the factors of x, y, w and h that most boxes show."""
    with np.errstate(all="ignore"):
        factors = [(boxes[:, :2] - priors[:, :2]) / priors[:, 2:] / x[:, :2], np.log(boxes[:, 2:] / priors[:, 2:]) / x[:, 2:]]
    medians = np.median(np.concatenate(factors, axis=1), axis=0)
    if not (np.isfinite(medians).all() and (medians > 0).all()):
        return np.zeros(4)
    # Programs write the reciprocals of whole numbers, such as 10 and 5.
    divisors = np.maximum(np.round(1 / medians), 1)
    return np.where(np.abs(medians * divisors - 1) < _ALMOST, 1 / divisors, medians)


def _list_priors(trial: DecodingTrial, levels: list[Level], counts: list[int], priors: Doubles) -> list[Keys] | None:
    """Return the anchors of each level as keys; None where they are not the same in the middle of every cell."""
    keys, start = [], 0
    for level, count in zip(levels, counts, strict=True):
        boxes = priors[start : start + level.cells * count].reshape(level.cells, count, 4)
        middle = (level.grid() + 0.5) * trial.stride(level)
        if not (
            is_close(trial, boxes[:, :, :2], np.repeat(middle[:, None], count, 1))
            and is_close(trial, boxes[:, :, 2:], np.broadcast_to(boxes[:1, :, 2:], (level.cells, count, 2)))
        ):
            return None
        keys.append(describe_anchors(boxes[0, :, 2:]))
        start += level.cells * count
    return keys


def _join_numbers(numbers: Doubles) -> str:
    return ",".join(f"{number:.9g}" for number in numbers)
