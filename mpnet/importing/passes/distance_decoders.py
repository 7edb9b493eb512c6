# SPDX-License-Identifier: MIT
"""Decoders of boxes by distances from a point to their sides, with scores in a table of their own.

RTMDet, NanoDet, PicoDet, DAMO-YOLO, PP-YOLOE and YOLO-NAS differ in where in its cell the point is, in how a distance is
written, and in what the layers compute already: the logistic function of scores, the factor of a cell's side.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations, product
from typing import Iterator, Sequence

import numpy as np

from mpnet.importing.heads import Head
from mpnet.importing.layer_graph import LayerOperation
from mpnet.importing.passes.box_decoders import (
    MAX_BINS,
    DecodingTrial,
    Doubles,
    FoundHeads,
    Level,
    compute_logistic,
    is_close,
    turn_to_corners,
)

_MOVES = ("Reshape", "Transpose", "Concat", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Slice", "Split")
_MAX_PAIRS = 16
# A level of stride 64 is what NanoDet-Plus added to NanoDet's three.
_NANODET_PLUS_LEVELS = 4
# What programs add to a score before its root is less.
_SMALLEST_SCORE = 1e-6


@dataclass(frozen=True)
class Part:
    """One tensor of a level, or one of those that are joined into it.

    tensor:    its name, before a logistic function and a factor of the cell's side.
    values:    random ones, behind these: (cells, channels).
    logistic:  whether the layers apply a logistic function. scaled: whether they multiply by the cell's side.
    alignment: the tensor of one channel before whose logistic function scores are multiplied by, to take the root; '': none.
    """

    tensor: str
    values: Doubles
    logistic: bool = False
    scaled: bool = False
    alignment: str = ""

    @property
    def channels(self) -> int:
        """Return its number of channels."""
        return int(self.values.shape[1])


Pair = tuple[Part, Part]


def try_distances(trial: DecodingTrial) -> FoundHeads:
    """Try distances of each grid from the middle or the corner of its cells: bins, the distance itself or its logarithm."""
    parts_by_level = [_split_into_parts(trial, level) for level in trial.levels]
    for bin_channels, classes in _list_channels(parts_by_level):
        pairs = [_find_pair(parts, bin_channels, classes) for parts in parts_by_level]
        levels = [(level, pair) for level, pair in zip(trial.levels, pairs, strict=True) if pair is not None]
        if not levels or not _has_scores(trial, levels, classes):
            continue
        for point, (exponential, distances) in product((0.5, 0.0), _list_distances(trial, levels, bin_channels // 4)):
            is_aligned = any(scores.alignment for _, (_, scores) in levels)
            # An exponential has a decoder from corners only, scores with an alignment one from middles.
            if (exponential and point) or (is_aligned and not point) or not _has_boxes(trial, levels, point, distances):
                continue
            return [_describe_head(pair, bin_channels // 4, point, exponential) for _, pair in levels], classes
    return None


def recognize_raw_distances(trial: DecodingTrial, operators: Sequence[str]) -> tuple[list[Head], int, str] | None:
    """Return the heads of a file that gives scores and bins of distances and decodes neither, and what is assumed.

    NanoDet joins them into one table, PicoDet gives those of each grid.

    operators: of the nodes behind the heads; only moves of values can be there.
    """
    parts_by_level = [_split_into_parts(trial, level) for level in trial.levels]
    if any(sorted(part.logistic for part in parts) != [False, True] for parts in parts_by_level):
        return None
    pairs = [(boxes, scores) for parts in parts_by_level for boxes, scores in permutations(parts, 2) if scores.logistic]
    shapes = {(boxes.channels, scores.channels) for boxes, scores in pairs}
    if len(shapes) > 1 or any(operator not in _MOVES for operator in operators):
        return None
    [(bin_channels, classes)] = shapes
    bins = bin_channels // 4
    if bin_channels % 4 or not 2 <= bins <= MAX_BINS:
        return None
    is_joined = all(len(level.tensors) == 1 for level in trial.levels)
    if not (_is_joined_table(trial) if is_joined else _are_tables(trial, parts_by_level)):
        return None
    is_plus = is_joined and len(trial.levels) >= _NANODET_PLUS_LEVELS
    point, name = (0.0, "NanoDet-Plus") if is_plus else (0.5, "NanoDet" if is_joined else "PicoDet")
    heads = [_describe_head(pair, bins, point, False) for pair in pairs]
    alternative = "yolov8 counts from their middle, as NanoDet" if is_plus else "rtmdet from their corner, as NanoDet-Plus"
    place = "corner" if is_plus else "middle"
    note = f"the file does not decode its boxes: {name}'s way is assumed, distances from the {place} of cells"
    if is_joined:
        note = note.replace(": ", f": with {len(trial.levels)} grids, ", 1)
    if not any(scores.alignment for _, scores in pairs):
        note += f"; --decoder {alternative}"
    return heads, classes, note


def _is_joined_table(trial: DecodingTrial) -> bool:
    """Return whether one table holds the values of all levels."""
    joined = np.concatenate([trial.values(level) for level in trial.levels])
    return any(is_close(trial, table, joined) for _, table in trial.tables(len(joined), joined.shape[1]))


def _are_tables(trial: DecodingTrial, parts_by_level: list[list[Part]]) -> bool:
    """Return whether each part of each level is a table of its own."""
    return all(
        any(is_close(trial, table, part.values) for _, table in trial.tables(len(part.values), part.channels))
        for parts in parts_by_level
        for part in parts
    )


def find_plain_tensor(makers: dict[str, LayerOperation], tensor: str) -> str:
    """Return the tensor that enters the logistic function that gives another; that one itself where none does."""
    maker = makers.get(tensor)
    is_logistic = maker is not None and maker.kind == "activation" and maker.values.get("word") == "logistic"
    return maker.inputs[0] if maker is not None and is_logistic else tensor


def _split_into_parts(trial: DecodingTrial, level: Level) -> list[Part]:
    makers, parts = trial.layers.makers(), []
    for tensor in level.tensors:
        values = trial.inputs[tensor][0].reshape(-1, level.cells).T.astype(float)
        maker = makers.get(tensor)
        names = maker.inputs if maker is not None and maker.kind == "concat" else [tensor]
        first = 0
        for name in names:
            channels = trial.layers.shapes[name][0]
            parts.append(_describe_part(trial, makers, level, name, values[:, first : first + channels]))
            first += channels
    return parts


def _describe_part(trial: DecodingTrial, makers: dict[str, LayerOperation], level: Level, tensor: str, values: Doubles) -> Part:
    aligned = _find_aligned_tensors(makers, tensor)
    if aligned is not None:
        return Part(aligned[0], values, logistic=True, alignment=aligned[1])
    plain_tensor = find_plain_tensor(makers, tensor)
    if plain_tensor != tensor:
        return Part(plain_tensor, values, logistic=True)
    maker = makers.get(tensor)
    if maker is not None and maker.kind == "affine" and not np.any(maker.values["shift"]):
        # The sides of a cell are the same here: one factor for all four distances.
        sides = np.append(trial.stride(level), maker.values["scale"])
        if np.ptp(sides) == 0:
            return Part(maker.inputs[0], values, scaled=True)
    return Part(tensor, values)


def _find_aligned_tensors(makers: dict[str, LayerOperation], tensor: str) -> tuple[str, str] | None:
    """Return the two tensors whose logistic functions are multiplied and whose root is taken: of scores, of an alignment."""
    root = makers.get(tensor)
    if root is None or root.kind != "activation" or root.values.get("word") != "sqrt":
        return None
    product = makers.get(root.inputs[0])
    while product is not None and product.kind == "affine":
        # Something small keeps the root's slope finite in training; paddle2onnx multiplies by 1 before it.
        is_almost_same = np.all(product.values["scale"] == 1) and np.abs(product.values["shift"]).max() <= _SMALLEST_SCORE
        product = makers.get(product.inputs[0]) if is_almost_same else None
    if product is None or product.kind != "mul" or product.values["operand"] == "per_channel":
        return None
    scores, alignment = product.inputs
    plain_scores, plain_alignment = find_plain_tensor(makers, scores), find_plain_tensor(makers, alignment)
    return (plain_scores, plain_alignment) if plain_scores != scores and plain_alignment != alignment else None


def _list_channels(parts_by_level: list[list[Part]]) -> list[tuple[int, int]]:
    """Return the (channels of bins, classes) that the parts of a level may have."""
    pairs = [
        (boxes.channels, scores.channels)
        for parts in parts_by_level
        for boxes, scores in permutations(parts, 2)
        if boxes.channels % 4 == 0 and boxes.channels <= 4 * MAX_BINS and not boxes.logistic
    ]
    return list(dict.fromkeys(pairs))[:_MAX_PAIRS]


def _find_pair(parts: list[Part], bin_channels: int, classes: int) -> Pair | None:
    """Return the first part of so many channels for boxes and another for scores."""
    return next(
        (
            (boxes, scores)
            for boxes, scores in permutations(parts, 2)
            if boxes.channels == bin_channels and scores.channels == classes and not boxes.logistic
        ),
        None,
    )


def _has_scores(trial: DecodingTrial, levels: list[tuple[Level, Pair]], classes: int) -> bool:
    expected = np.concatenate(
        [scores.values if scores.logistic else compute_logistic(scores.values) for _, (_, scores) in levels]
    )
    return any(
        is_close(trial, table[:, first : first + classes], expected)
        for _, table in trial.tables(len(expected), classes)
        for first in dict.fromkeys((0, 4, table.shape[1] - classes))
    )


def _list_distances(trial: DecodingTrial, levels: list[tuple[Level, Pair]], bins: int) -> Iterator[tuple[bool, list[Doubles]]]:
    """Yield whether a value is the distance's logarithm, and the distances of each level, in cells."""
    values = [boxes.values / (np.tile(trial.stride(level), 2) if boxes.scaled else 1.0) for level, (boxes, _) in levels]
    if bins > 1:
        shares = [np.exp(x.reshape(-1, 4, bins)) for x in values]
        yield False, [(share / share.sum(-1, keepdims=True)) @ np.arange(float(bins)) for share in shares]
        return
    yield False, values
    if not any(boxes.scaled for _, (boxes, _) in levels):
        yield True, [np.exp(x) for x in values]


def _has_boxes(trial: DecodingTrial, levels: list[tuple[Level, Pair]], point: float, distances: list[Doubles]) -> bool:
    boxes = []
    for (level, _), distance in zip(levels, distances, strict=True):
        stride = trial.stride(level)
        middle = (level.grid() + point + (distance[:, 2:] - distance[:, :2]) / 2) * stride
        boxes.append(np.concatenate([middle, (distance[:, :2] + distance[:, 2:]) * stride], axis=1))
    centres = np.concatenate(boxes)
    side = np.array(trial.image * 2, float)
    forms = [form / unit for form in (turn_to_corners(centres), centres) for unit in (np.ones(4), side)]
    return any(is_close(trial, table[:, :4], form) for _, table in trial.tables(len(centres), 4) for form in forms)


def _describe_head(pair: Pair, bins: int, point: float, exponential: bool) -> Head:
    boxes, scores = pair
    keys = [("reg_max", str(bins))]
    if scores.alignment:
        return Head((boxes.tensor, scores.tensor, scores.alignment), "picodet", tuple(keys))
    if point == 0 and bins == 1:
        keys.append(("linear", str(int(not exponential))))
    return Head((boxes.tensor, scores.tensor), "yolov8" if point else "rtmdet", tuple(keys))
