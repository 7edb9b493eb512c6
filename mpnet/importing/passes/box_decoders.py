# SPDX-License-Identifier: MIT
"""The box decoders that are tried on the nodes behind the layers: each compares its boxes with the tables of these."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, permutations
from typing import Iterator

import numpy as np
from numpy.typing import NDArray

from mpnet.importing.graph import Array, NodeGraph
from mpnet.importing.heads import Head
from mpnet.importing.layer_graph import LayerGraph, LayerOperation
from mpnet.importing.operators import Budget

Doubles = NDArray[np.float64]
# A file computes in float32, the formulas here in float64.
_TOLERANCE = 2e-4
# In quantised files the constants of box decoding, such as a grid's, have 8 bits as well.
_QUANTISED_TOLERANCE = 3e-2
# In files of float16 or bfloat16 they have 11 or 8 bits; several follow each other.
_HALF_TOLERANCE = 8e-3
# Of a distance; csrc/mprun/heads.c takes no more.
MAX_BINS = 64


@dataclass(frozen=True)
class Level:
    """The tensors of one grid, in the order of the graph."""

    tensors: tuple[str, ...]
    channels: tuple[int, ...]
    rows: int
    columns: int

    @property
    def cells(self) -> int:
        """Count the cells of its grid."""
        return self.rows * self.columns

    def grid(self) -> Doubles:
        """Return the column and the row of each cell: (cells, 2)."""
        return np.stack(np.meshgrid(np.arange(self.columns), np.arange(self.rows)), -1).reshape(-1, 2).astype(float)


@dataclass(frozen=True)
class DecodingTrial:
    """The test values that a decoder is tried on.

    levels:  in the order tried. inputs: the random values of tensors that leave the layers.
    results: the tables that come of zeros and of these values.
    image:   (width, height). budget: of work that is left.
    """

    graph: NodeGraph
    layers: LayerGraph
    levels: list[Level]
    inputs: dict[str, Array]
    results: list[dict[str, Array]]
    image: tuple[int, int]
    budget: Budget

    def tables(self, rows: int, min_columns: int) -> Iterator[tuple[Doubles, Doubles]]:
        """Yield (of zeros, of random values) every tensor that has so many rows of at least `min_columns` values."""
        return islice(self._tables(rows, min_columns), 64)

    def _tables(self, rows: int, min_columns: int) -> Iterator[tuple[Doubles, Doubles]]:
        for name, table in self.results[1].items():
            of_zeros = self.results[0].get(name)
            if of_zeros is None or of_zeros.shape != table.shape:
                continue
            for a, b in ((of_zeros, table), (of_zeros.T, table.T)):
                if a.shape[0] == rows and a.shape[1] >= min_columns:
                    # A comparison with what a decoder gives takes some fifty additions for each value.
                    self.budget.values -= 50 * a.size
                    if self.budget.values < 0:
                        return
                    yield a.astype(float), b.astype(float)

    def values(self, level: Level) -> Doubles:
        """Return the random values of one level's tensors side by side: (cells, channels)."""
        columns = [self.inputs[name][0].reshape(-1, level.cells).T for name in level.tensors]
        return np.concatenate(columns, axis=1).astype(float)

    def stride(self, level: Level) -> Doubles:
        """Return the width and the height of a cell, in pixels."""
        return np.array([self.image[0] / level.columns, self.image[1] / level.rows])


FoundHeads = tuple[list[Head], int] | None
Keys = tuple[tuple[str, str], ...]


def is_close(trial: DecodingTrial, a: Doubles, b: Doubles) -> bool:
    """Return whether two tables hold the same, but for the rounding of the file's types."""
    graph = trial.graph
    tolerance = _QUANTISED_TOLERANCE if graph.quantization else _HALF_TOLERANCE if graph.has_half_floats else _TOLERANCE
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return False
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max()))))


def compute_logistic(x: Doubles) -> Doubles:
    """Return 1 / (1 + e^-x)."""
    return np.asarray(1 / (1 + np.exp(-x)))


def turn_to_corners(boxes: Doubles) -> Doubles:
    """Return the left, top, right and bottom sides of boxes: centre, width and height."""
    return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], axis=1)


def try_yolov8(trial: DecodingTrial) -> FoundHeads:
    """Try YOLOv8: bins of distances and classes of each grid, as one tensor or two; of oriented boxes an angle as another.

    What else there is, keypoints, masks and prototypes, may follow in the table.
    """
    for bin_channels, classes in _list_yolov8_channels(trial):
        levels = [ordered for level in trial.levels if (ordered := _order_tensors(level, bin_channels, classes)) is not None]
        total = sum(level.cells for level in levels)
        if not levels:
            continue
        bins = bin_channels // 4
        forms: list[tuple[str, dict[str, str], list[Level]]] = [("yolov8", {}, levels)]
        levels_with_angle = [_add_angle(trial, level) for level in levels]
        if all(
            len(level_with_angle.tensors) > len(level.tensors)
            for level_with_angle, level in zip(levels_with_angle, levels, strict=True)
        ):
            forms += [("yolov8_obb", keys, levels_with_angle) for keys in ({}, {"linear": "1"})]
        for decoder, keys, tensors in forms:
            angle = "" if decoder == "yolov8" else "value" if keys else "logistic"
            expected = np.concatenate([_decode_yolov8(trial, level, bins, classes, angle) for level in tensors])
            by_corners = np.concatenate([turn_to_corners(expected[:, :4]), expected[:, 4:]], axis=1)
            for _, table in trial.tables(total, 4 + classes):
                boxes = table[:, : 4 + classes]
                if is_close(trial, boxes, expected) or is_close(trial, boxes, by_corners):
                    heads = [Head(level.tensors, decoder, (("reg_max", str(bins)), *keys.items())) for level in tensors]
                    return heads, classes
    return None


def _list_yolov8_channels(trial: DecodingTrial) -> list[tuple[int, int]]:
    """Return the (channels of bins, classes) that the tensors of grids may have."""
    pairs = [pair for level in trial.levels for pair in permutations(level.channels, 2)]
    # Prototypes of masks are a level of their own, finer than those that have boxes.
    coarsest = min(trial.levels, key=lambda level: level.cells).channels
    total = sum(level.cells for level in trial.levels if level.channels == coarsest)
    for _, table in trial.tables(total, 5):
        # Four sides, classes, and what tensors beside bins and classes hold: as it is in the table.
        bins = sum(coarsest) + 4 - table.shape[1]
        pairs += [(bins, table.shape[1] - 4), *((bins, channels - bins) for channels in coarsest)]
    return [
        (bins, classes) for bins, classes in dict.fromkeys(pairs) if 4 <= bins <= 4 * MAX_BINS and bins % 4 == 0 and classes > 0
    ]


def _decode_yolov8(trial: DecodingTrial, level: Level, bins: int, classes: int, angle: str) -> Doubles:
    """Return the centre, width and height in pixels, and scores, of the random values: (cells, 4 + classes).

    angle: '' for none, else how the last value of a cell gives it: 'logistic' or 'value'.
    """
    x = trial.values(level)
    distance = x[:, :4]
    if bins > 1:
        shares = np.exp(x[:, : 4 * bins].reshape(-1, 4, bins))
        distance = (shares / shares.sum(-1, keepdims=True)) @ np.arange(float(bins))
    offset, sizes = (distance[:, 2:] - distance[:, :2]) / 2, distance[:, :2] + distance[:, 2:]
    if angle:
        turn = x[:, -1] if angle == "value" else (compute_logistic(x[:, -1]) - 0.25) * np.pi
        sine, cosine = np.sin(turn), np.cos(turn)
        offset = np.stack([offset[:, 0] * cosine - offset[:, 1] * sine, offset[:, 0] * sine + offset[:, 1] * cosine], 1)
    stride = trial.stride(level)
    scores = compute_logistic(x[:, 4 * bins : 4 * bins + classes])
    return np.concatenate([(level.grid() + 0.5 + offset) * stride, sizes * stride, scores], axis=1)


def _add_angle(trial: DecodingTrial, level: Level) -> Level:
    """Return the level with the last of its grid's tensors of one channel besides its own; itself where there is none."""
    [grid_level] = [
        candidate for candidate in trial.levels if (candidate.rows, candidate.columns) == (level.rows, level.columns)
    ]
    angle_tensors = [
        name
        for name, channels in zip(grid_level.tensors, grid_level.channels, strict=True)
        if channels == 1 and name not in level.tensors
    ]
    return Level(
        (*level.tensors, *angle_tensors[-1:]), (*level.channels, *[1] * len(angle_tensors[-1:])), level.rows, level.columns
    )


def _order_tensors(level: Level, first_channels: int, second_channels: int) -> Level | None:
    """Return the level with its tensor of both numbers of channels together, or its two tensors in that order.

    None where it has neither.
    """
    if first_channels + second_channels in level.channels:
        indices = [level.channels.index(first_channels + second_channels)]
    elif {first_channels, second_channels} <= set(level.channels) and (
        first_channels != second_channels or level.channels.count(first_channels) > 1
    ):
        first_index = level.channels.index(first_channels)
        indices = [
            first_index,
            level.channels.index(second_channels, first_index + 1 if first_channels == second_channels else 0),
        ]
    else:
        return None
    ordered = tuple(level.tensors[index] for index in indices), tuple(level.channels[index] for index in indices)
    return Level(*ordered, level.rows, level.columns)


def try_yolov5(trial: DecodingTrial) -> FoundHeads:
    """Try YOLOv5: for each anchor x, y, w, h, objectness and classes."""
    if any(len(level.tensors) > 1 for level in trial.levels):
        return None
    for anchors in range(1, 10):
        total = anchors * sum(level.cells for level in trial.levels)
        for zero, table in trial.tables(total, 6):
            values = table.shape[1]
            if any(level.channels != (anchors * values,) for level in trial.levels):
                continue
            expected, heads, start = [], [], 0
            for level in trial.levels:
                stop = start + anchors * level.cells
                # Of zeros: (2 * 0.5)^2 anchors.
                sizes = zero[start:stop, 2:4].reshape(anchors, level.cells, 2)
                x = compute_logistic(trial.values(level).reshape(level.cells, anchors, values).transpose(1, 0, 2))
                xy = (2 * x[..., :2] - 0.5 + level.grid()) * trial.stride(level)
                size = (2 * x[..., 2:4]) ** 2 * sizes[:, :1]
                expected.append(np.concatenate([xy, size, x[..., 4:]], axis=-1).reshape(-1, values))
                heads.append(Head(level.tensors, "yolov5", describe_anchors(sizes[:, 0])))
                start = stop
            if is_close(trial, table, np.concatenate(expected)):
                return heads, values - 5
    return None


def describe_anchors(sizes: Doubles) -> Keys:
    """Return the keys of anchors, (number, 2) in pixels."""
    return (("num", str(len(sizes))), ("anchors", ", ".join(f"{w:.7g},{h:.7g}" for w, h in sizes)))


def try_yolox(trial: DecodingTrial) -> FoundHeads:
    """Try YOLOX: boxes may be decoded in the file or not; objectness and classes have gone through a logistic function."""
    total = sum(level.cells for level in trial.levels)
    makers = trial.layers.makers()
    tensors_by_level = [
        _find_yolox_tensors(makers, makers.get(level.tensors[0])) for level in trial.levels if len(level.tensors) == 1
    ]
    decoded_tensors = [tensors for tensors in tensors_by_level if tensors is not None]
    if len(decoded_tensors) < len(trial.levels):
        return None
    for _, table in trial.tables(total, 6):
        if any(level.channels != (table.shape[1],) for level in trial.levels):
            continue
        raw = [trial.values(level) for level in trial.levels]
        decoded = [
            np.concatenate(
                [(x[:, :2] + level.grid()) * trial.stride(level), np.exp(x[:, 2:4]) * trial.stride(level), x[:, 4:]], axis=1
            )
            for x, level in zip(raw, trial.levels, strict=True)
        ]
        if is_close(trial, table, np.concatenate(raw)) or is_close(trial, table, np.concatenate(decoded)):
            return [Head(tensors, "yolox") for tensors in decoded_tensors], table.shape[1] - 5
    return None


def _find_yolox_tensors(makers: dict[str, LayerOperation], operation: LayerOperation | None) -> tuple[str, ...] | None:
    """Return the tensors of a concatenation of boxes and what went through a logistic function, before that function."""
    if operation is None or operation.kind != "concat" or len(operation.inputs) != 3:
        return None
    gates = [makers.get(name) for name in operation.inputs[1:]]
    raw = [gate.inputs[0] for gate in gates if gate is not None and gate.values.get("word") == "logistic"]
    return (operation.inputs[0], *raw) if len(raw) == 2 else None
