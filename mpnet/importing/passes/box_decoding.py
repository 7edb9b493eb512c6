# SPDX-License-Identifier: MIT
"""Box decoding behind the last layers that mpnet knows is found by trying it.

The nodes behind the layers are computed on zeros and on random values; where some tensor of theirs is what one of the decoders
gives for the same values, that decoder takes their place. Anchors are what comes out of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, permutations
from typing import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from mpnet.importing.graph import Array, Node, NodeGraph, Refused
from mpnet.importing.heads import Head, HeadChoice
from mpnet.importing.layer_graph import LayerGraph, LayerOperation
from mpnet.importing.operators import Budget, OperatorCall, evaluate

Doubles = NDArray[np.float64]
# A file computes in float32, the formulas here in float64.
_TOLERANCE = 2e-4
# In quantised files the constants of box decoding, such as a grid's, have 8 bits as well.
_QUANTISED_TOLERANCE = 3e-2
_MAX_NODES, _MAX_VALUES = 400, 1 << 24
# What trying may take, both times together: some seconds, and 512 MB.
_MAX_WORK, _MAX_BYTES = 1 << 31, 1 << 29
_SEED = 7
# Of a distance; csrc/mprun/heads.c takes no more.
_MAX_BINS = 64


@dataclass(frozen=True)
class _Level:
    """The tensors of one grid, in the order of the graph."""

    tensors: tuple[str, ...]
    channels: tuple[int, ...]
    rows: int
    columns: int

    @property
    def cells(self) -> int:
        return self.rows * self.columns

    def grid(self) -> Doubles:
        """(cells, 2): column and row."""
        return np.stack(np.meshgrid(np.arange(self.columns), np.arange(self.rows)), -1).reshape(-1, 2).astype(float)


def leaving_tensors(graph: NodeGraph, layers: LayerGraph) -> list[str]:
    """Tensors that leave the layers: outputs, and what nodes that are no layers read; not the image."""
    lifted = layers.node_names()
    names = [name for node in graph.nodes if node.name not in lifted for name in node.inputs]
    return [name for name in dict.fromkeys([*names, *graph.outputs]) if name in layers.shapes and name != graph.image]


def recognise(graph: NodeGraph, layers: LayerGraph, leaving: list[str], behind: list[Node]) -> HeadChoice | None:
    """The decoder that the nodes behind the layers are, None for anything else. leaving: tensors that these nodes read."""
    levels = _levels(layers, leaving)
    height, width = graph.shapes[graph.image][2:]
    if len(levels) > 16 or sum(sum(level.channels) * level.cells for level in levels) > _MAX_VALUES:
        return None
    random = np.random.Generator(np.random.PCG64(_SEED))
    shapes = {name: (1, *layers.shapes[name]) for name in leaving}
    inputs: list[dict[str, Array]] = [
        {name: np.zeros(shape, np.float32) for name, shape in shapes.items()},
        {name: random.uniform(0.02, 0.98, shape).astype(np.float32) for name, shape in shapes.items()},
    ]
    budget = Budget(_MAX_WORK, _MAX_BYTES)
    results = [_computed(graph, behind, values, budget) for values in inputs]
    for function in _DECODERS:
        for ordered in (levels, levels[::-1]):
            choice = function(_Trial(graph, layers, ordered, inputs[1], results, (width, height), budget))
            if choice is not None:
                heads, classes = choice
                decoded = {name for head in heads for name in head.tensors}
                heads += [Head((name,)) for name in leaving if name not in decoded and heads[0].decoder.startswith("yolov8")]
                operators = {node.operator for node in behind}
                return HeadChoice(
                    heads, classes, heads[0].decoder, "TopK" in operators and "NonMaxSuppression" not in operators
                )
    return None


def _levels(layers: LayerGraph, leaving: list[str]) -> list[_Level]:
    grids: dict[tuple[int, int], list[str]] = {}
    for name in leaving:
        grids.setdefault(layers.shapes[name][1:], []).append(name)
    levels = [_Level(tuple(names), tuple(layers.shapes[name][0] for name in names), *grid) for grid, names in grids.items()]
    return sorted(levels, key=lambda level: -level.cells)


def _computed(graph: NodeGraph, nodes: list[Node], inputs: dict[str, Array], budget: Budget) -> dict[str, Array]:
    """Every table behind the layers that can be computed: tensors of one image with rows and columns."""
    known = dict(inputs)
    for node in nodes[:_MAX_NODES]:
        arrays = [known.get(name, graph.constants.get(name)) if name else None for name in node.inputs]
        if all(array is not None or not name for array, name in zip(arrays, node.inputs, strict=True)):
            try:
                known.update(zip(node.outputs, evaluate(OperatorCall(node, arrays), budget), strict=False))
            except Refused:
                continue
    return {
        name: array.reshape(array.shape[-2:])
        for name, array in known.items()
        if name not in inputs and (array.ndim == 2 or (array.ndim == 3 and array.shape[0] == 1))
    }


@dataclass(frozen=True)
class _Trial:
    """levels: in the order tried. inputs: the random values of tensors that leave the layers. results: the tables that come of
    zeros and of these values. image: (width, height). budget: of work that is left."""

    graph: NodeGraph
    layers: LayerGraph
    levels: list[_Level]
    inputs: dict[str, Array]
    results: list[dict[str, Array]]
    image: tuple[int, int]
    budget: Budget

    def tables(self, rows: int, least: int) -> Iterator[tuple[Doubles, Doubles]]:
        """(of zeros, of random values) of every tensor that has so many rows of at least `least` values."""
        return islice(self._tables(rows, least), 64)

    def _tables(self, rows: int, least: int) -> Iterator[tuple[Doubles, Doubles]]:
        for name, table in self.results[1].items():
            of_zeros = self.results[0].get(name)
            if of_zeros is None or of_zeros.shape != table.shape:
                continue
            for a, b in ((of_zeros, table), (of_zeros.T, table.T)):
                if a.shape[0] == rows and a.shape[1] >= least:
                    # A comparison with what a decoder gives takes some fifty additions for each value.
                    self.budget.values -= 50 * a.size
                    if self.budget.values < 0:
                        return
                    yield a.astype(float), b.astype(float)

    def values(self, level: _Level) -> Doubles:
        """(cells, channels) of the random values of one level's tensors, side by side."""
        parts = [self.inputs[name][0].reshape(-1, level.cells).T for name in level.tensors]
        return np.concatenate(parts, axis=1).astype(float)

    def stride(self, level: _Level) -> Doubles:
        """(x, y) pixels of a cell."""
        return np.array([self.image[0] / level.columns, self.image[1] / level.rows])


_Heads = tuple[list[Head], int] | None


def _close(trial: _Trial, a: Doubles, b: Doubles) -> bool:
    tolerance = _QUANTISED_TOLERANCE if trial.graph.quantization else _TOLERANCE
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return False
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max()))))


def _s(x: Doubles) -> Doubles:
    return np.asarray(1 / (1 + np.exp(-x)))


def _corners(boxes: Doubles) -> Doubles:
    return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], axis=1)


def _yolov8(trial: _Trial) -> _Heads:
    """Bins of distances and classes of each grid, as one tensor or two; of oriented boxes an angle as another. What else there
    is, keypoints, masks and prototypes, may follow in the table."""
    for bin_channels, classes in _yolov8_channels(trial):
        levels = [ordered for level in trial.levels if (ordered := _ordered(level, bin_channels, classes)) is not None]
        total = sum(level.cells for level in levels)
        if not levels:
            continue
        bins = bin_channels // 4
        forms: list[tuple[str, dict[str, str], list[_Level]]] = [("yolov8", {}, levels)]
        turned = [_with_angle(trial, level) for level in levels]
        if all(len(after.tensors) > len(before.tensors) for after, before in zip(turned, levels, strict=True)):
            forms += [("yolov8_obb", keys, turned) for keys in ({}, {"linear": "1"})]
        for decoder, keys, tensors in forms:
            angle = "" if decoder == "yolov8" else "value" if keys else "logistic"
            wanted = np.concatenate([_yolov8_boxes(trial, level, bins, classes, angle) for level in tensors])
            by_corners = np.concatenate([_corners(wanted[:, :4]), wanted[:, 4:]], axis=1)
            for _, table in trial.tables(total, 4 + classes):
                boxes = table[:, : 4 + classes]
                if _close(trial, boxes, wanted) or _close(trial, boxes, by_corners):
                    heads = [Head(level.tensors, decoder, (("reg_max", str(bins)), *keys.items())) for level in tensors]
                    return heads, classes
    return None


def _yolov8_channels(trial: _Trial) -> list[tuple[int, int]]:
    """(channels of bins, classes) that the tensors of grids may have."""
    pairs = [pair for level in trial.levels for pair in permutations(level.channels, 2)]
    # Prototypes of masks are a level of their own, finer than those that have boxes.
    coarsest = min(trial.levels, key=lambda level: level.cells).channels
    total = sum(level.cells for level in trial.levels if level.channels == coarsest)
    for _, table in trial.tables(total, 5):
        # Four sides, classes, and what tensors beside bins and classes hold: as it is in the table.
        bins = sum(coarsest) + 4 - table.shape[1]
        pairs += [(bins, table.shape[1] - 4), *((bins, channels - bins) for channels in coarsest)]
    return [
        (bins, classes)
        for bins, classes in dict.fromkeys(pairs)
        if 4 <= bins <= 4 * _MAX_BINS and bins % 4 == 0 and classes > 0
    ]


def _yolov8_boxes(trial: _Trial, level: _Level, bins: int, classes: int, angle: str) -> Doubles:
    """(cells, 4 + classes): centre, width and height in pixels, and scores, of the random values. angle: '' for none, else how
    the last value of a cell gives it: 'logistic' or 'value'."""
    x = trial.values(level)
    distance = x[:, :4]
    if bins > 1:
        shares = np.exp(x[:, : 4 * bins].reshape(-1, 4, bins))
        distance = (shares / shares.sum(-1, keepdims=True)) @ np.arange(float(bins))
    offset, sizes = (distance[:, 2:] - distance[:, :2]) / 2, distance[:, :2] + distance[:, 2:]
    if angle:
        turn = x[:, -1] if angle == "value" else (_s(x[:, -1]) - 0.25) * np.pi
        sine, cosine = np.sin(turn), np.cos(turn)
        offset = np.stack([offset[:, 0] * cosine - offset[:, 1] * sine, offset[:, 0] * sine + offset[:, 1] * cosine], 1)
    stride = trial.stride(level)
    scores = _s(x[:, 4 * bins : 4 * bins + classes])
    return np.concatenate([(level.grid() + 0.5 + offset) * stride, sizes * stride, scores], axis=1)


def _with_angle(trial: _Trial, level: _Level) -> _Level:
    """The level with the last of its grid's tensors of one channel that it does not have yet; itself where there is none."""
    [whole] = [other for other in trial.levels if (other.rows, other.columns) == (level.rows, level.columns)]
    rest = [
        name
        for name, channels in zip(whole.tensors, whole.channels, strict=True)
        if channels == 1 and name not in level.tensors
    ]
    return _Level((*level.tensors, *rest[-1:]), (*level.channels, *[1] * len(rest[-1:])), level.rows, level.columns)


def _ordered(level: _Level, first: int, second: int) -> _Level | None:
    """The level's tensor of so many channels, or its two tensors, that of `first` channels before that of `second`."""
    if first + second in level.channels:
        wanted = [level.channels.index(first + second)]
    elif {first, second} <= set(level.channels) and (first != second or level.channels.count(first) > 1):
        before = level.channels.index(first)
        wanted = [before, level.channels.index(second, before + 1 if first == second else 0)]
    else:
        return None
    parts = tuple(level.tensors[at] for at in wanted), tuple(level.channels[at] for at in wanted)
    return _Level(*parts, level.rows, level.columns)


def _yolov5(trial: _Trial) -> _Heads:
    if any(len(level.tensors) > 1 for level in trial.levels):
        return None
    for anchors in range(1, 10):
        total = anchors * sum(level.cells for level in trial.levels)
        for zero, table in trial.tables(total, 6):
            values = table.shape[1]
            if any(level.channels != (anchors * values,) for level in trial.levels):
                continue
            wanted, heads, start = [], [], 0
            for level in trial.levels:
                stop = start + anchors * level.cells
                # Of zeros: (2 * 0.5)^2 anchors.
                sizes = zero[start:stop, 2:4].reshape(anchors, level.cells, 2)
                x = _s(trial.values(level).reshape(level.cells, anchors, values).transpose(1, 0, 2))
                xy = (2 * x[..., :2] - 0.5 + level.grid()) * trial.stride(level)
                size = (2 * x[..., 2:4]) ** 2 * sizes[:, :1]
                wanted.append(np.concatenate([xy, size, x[..., 4:]], axis=-1).reshape(-1, values))
                heads.append(Head(level.tensors, "yolov5", _anchors(sizes[:, 0])))
                start = stop
            if _close(trial, table, np.concatenate(wanted)):
                return heads, values - 5
    return None


def _anchors(sizes: Doubles) -> tuple[tuple[str, str], ...]:
    return (("num", str(len(sizes))), ("anchors", ", ".join(f"{w:.7g},{h:.7g}" for w, h in sizes)))


def _yolox(trial: _Trial) -> _Heads:
    """Boxes may be decoded in the file or not; objectness and classes have gone through the logistic function."""
    total = sum(level.cells for level in trial.levels)
    makers = trial.layers.makers()
    parts = [_yolox_parts(makers, makers.get(level.tensors[0])) for level in trial.levels if len(level.tensors) == 1]
    decoded_parts = [part for part in parts if part is not None]
    if len(decoded_parts) < len(trial.levels):
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
        if _close(trial, table, np.concatenate(raw)) or _close(trial, table, np.concatenate(decoded)):
            return [Head(part, "yolox") for part in decoded_parts], table.shape[1] - 5
    return None


def _yolox_parts(makers: dict[str, LayerOperation], operation: LayerOperation | None) -> tuple[str, ...] | None:
    """The tensors of a concatenation of boxes and what went through a logistic function, before that."""
    if operation is None or operation.kind != "concat" or len(operation.inputs) != 3:
        return None
    gates = [makers.get(name) for name in operation.inputs[1:]]
    raw = [gate.inputs[0] for gate in gates if gate is not None and gate.values.get("word") == "logistic"]
    return (operation.inputs[0], *raw) if len(raw) == 2 else None


def _ssd(trial: _Trial) -> _Heads:
    """Two tensors a level: boxes and classes; boxes by priors in the middle of cells, in corners or centres, in shares of the
    image or pixels."""
    if any(len(level.tensors) != 2 for level in trial.levels):
        return None
    for flip in (False, True):
        levels = [
            _Level(level.tensors[::-1], level.channels[::-1], level.rows, level.columns) if flip else level
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
        softmax = _softmaxed(trial, levels, counts, min(classes), total)
        if softmax is None:
            continue
        for zero, table in trial.tables(total, 4):
            if table.shape[1] == 4 and (heads := _priors(trial, levels, counts, zero, table, softmax)):
                return heads, min(classes) - int(softmax)
    return None


def _rows(trial: _Trial, levels: list[_Level], counts: list[int], part: int, width: int) -> Doubles:
    """(all boxes, width) of the random values, cell by cell."""
    return np.concatenate(
        [
            trial.inputs[level.tensors[part]][0].reshape(-1, level.cells).T.reshape(level.cells * count, width)
            for level, count in zip(levels, counts, strict=True)
        ]
    ).astype(float)


def _softmaxed(trial: _Trial, levels: list[_Level], counts: list[int], classes: int, total: int) -> bool | None:
    """Whether scores go through a softmax; None: neither that nor a logistic function is found."""
    x = _rows(trial, levels, counts, 1, classes)
    shares = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    for _, table in trial.tables(total, classes):
        if _close(trial, table, shares):
            return True
        if _close(trial, table, _s(x)):
            return False
    return None


def _priors(
    trial: _Trial, levels: list[_Level], counts: list[int], zero: Doubles, table: Doubles, softmax: bool
) -> list[Head] | None:
    x, side = _rows(trial, levels, counts, 0, 4), np.array(trial.image * 2, float)
    for corners in (True, False):
        centres = np.concatenate([(zero[:, :2] + zero[:, 2:]) / 2, zero[:, 2:] - zero[:, :2]], axis=1) if corners else zero
        for unit in (side, np.ones(4)):
            priors = centres * unit
            wanted = (
                np.concatenate([priors[:, :2] + x[:, :2] * 0.1 * priors[:, 2:], priors[:, 2:] * np.exp(0.2 * x[:, 2:])], axis=1)
                / unit
            )
            if not _close(trial, table, _corners(wanted) if corners else wanted):
                continue
            heads, start = [], 0
            for level, count in zip(levels, counts, strict=True):
                boxes = priors[start : start + level.cells * count].reshape(level.cells, count, 4)
                middle = (level.grid() + 0.5) * trial.stride(level)
                if not (
                    _close(trial, boxes[:, :, :2], np.repeat(middle[:, None], count, 1))
                    and _close(trial, boxes[:, :, 2:], np.broadcast_to(boxes[:1, :, 2:], (level.cells, count, 2)))
                ):
                    return None
                keys = (*_anchors(boxes[0, :, 2:]), ("softmax", str(int(softmax))))
                heads.append(Head(level.tensors, "ssd", keys))
                start += level.cells * count
            return heads
    return None


_DECODERS: tuple[Callable[[_Trial], _Heads], ...] = (_yolov8, _yolov5, _yolox, _ssd)
