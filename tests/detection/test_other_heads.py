# SPDX-License-Identifier: MIT
"""[region], [Gaussian_yolo], [detection] and new_coords against formulas written a second time, in float64."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from mpnet.detection.decode import Candidates, YoloHead, decode_head, yolo_heads
from mpnet.detection.preprocess import plan_geometry
from mpnet.formats.cfg.read import parse_cfg
from mpnet.model.tree import Tree

# Roots 0 and 1; 2, 3 below 0; 4, 5 below 1; 6 below 4.
TREE = Tree((-1, -1, 0, 0, 1, 1, 4))
WIDTH, HEIGHT, ROWS, COLUMNS, CLASSES = 96, 64, 2, 3, 7
REGION = (
    "[net]\nwidth=96\nheight=64\nchannels=3\n[convolutional]\nfilters=24\nsize=32\nstride=32\nactivation=linear\n"
    "[region]\nclasses=7\nnum=2\nanchors=1.5,2, 0.5,1\nsoftmax="
)
GAUSSIAN = (
    "[net]\nwidth=96\nheight=64\nchannels=3\n[convolutional]\nfilters=32\nsize=32\nstride=32\nactivation=linear\n"
    "[Gaussian_yolo]\nclasses=7\nnum=2\nanchors=10,14, 81,82\nscale_x_y=1.1\nyolo_point="
)


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def softmax(values: list[float]) -> list[float]:
    exponentials = [math.exp(v) for v in values]
    return [p / sum(exponentials) for p in exponentials]


def decoded(head: np.ndarray, yolo: YoloHead, confidence: float = 0.05) -> dict[tuple[int, ...], tuple[float, list[float]]]:
    """Return {(class, number): (score, box)} in the decoder's order."""
    candidates: Candidates = decode_head(head, yolo, [plan_geometry(WIDTH, HEIGHT, WIDTH, HEIGHT, "stretch")], confidence)
    rows = zip(candidates.category.tolist(), candidates.score.tolist(), candidates.box.tolist(), strict=True)
    return {(k, number): (score, box) for number, (k, score, box) in enumerate(rows)}


def check(actual: dict[tuple[int, ...], tuple[float, list[float]]], expected: list[tuple[int, float, list[float]]]) -> None:
    expected = sorted(expected, key=lambda row: (row[0], -row[1]))
    assert len(actual) == len(expected) > 3
    for (key, (score, box)), (k, exact, expected_box) in zip(actual.items(), expected, strict=True):
        assert key[0] == k
        # Some thirty float32 roundings of values up to 10.
        assert score == pytest.approx(exact, rel=4e-6)
        assert box == pytest.approx(expected_box, rel=4e-6, abs=4e-6)


def cells(head: np.ndarray, values: int) -> list[tuple[int, int, int, list[float]]]:
    """Return (row, column, anchor, its values)."""
    return [
        (y, x, a, head[0, y, x, a * values : (a + 1) * values].astype(float).tolist())
        for y in range(ROWS)
        for x in range(COLUMNS)
        for a in range(2)
    ]


def random_head(channels: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(channels)).normal(0, 1.5, (1, ROWS, COLUMNS, channels)).astype(np.float32)


@pytest.mark.parametrize(("softmaxed", "dialect"), [(1, "darknet"), (1, "alexeyab"), (0, "darknet"), (0, "alexeyab")])
def test_region(softmaxed: int, dialect: str) -> None:
    (yolo,) = yolo_heads(parse_cfg(f"{REGION}{softmaxed}\n", "t.cfg", dialect))
    head, expected = random_head(24), []
    for y, x, a, (tx, ty, tw, th, objectness_logit, *raw) in cells(head, 12):
        anchor = ((1.5, 2.0), (0.5, 1.0))[a]
        box = [
            (x + logistic(tx)) / COLUMNS,
            (y + logistic(ty)) / ROWS,
            math.exp(tw) * anchor[0] / COLUMNS,
            math.exp(th) * anchor[1] / ROWS,
        ]
        alone = raw if dialect == "alexeyab" else [logistic(v) for v in raw]
        classes = softmax(raw) if softmaxed else alone
        scores = [logistic(objectness_logit) * p for p in classes]
        expected += [(k, score, box) for k, score in enumerate(scores) if logistic(objectness_logit) > 0.05 and score > 0.05]
    check(decoded(head, yolo), expected)


@pytest.mark.parametrize("mapped", [(), (6, 2)])
def test_region_with_a_tree(mapped: tuple[int, ...]) -> None:
    (plain,) = yolo_heads(parse_cfg(f"{REGION}1\n", "t.cfg"))
    assert plain.other is not None
    tree_head = replace(plain.other, classes_by="tree", tree=TREE, map=mapped)
    yolo = replace(plain, other=tree_head, classes=len(mapped) or CLASSES)
    head, expected = 3 * random_head(24), []
    for y, x, a, (tx, ty, tw, th, objectness_logit, *raw) in cells(head, 12):
        node = softmax(raw[0:2]) + softmax(raw[2:4]) + softmax(raw[4:6]) + softmax(raw[6:7])
        for k, parent in enumerate(TREE.parents):
            node[k] *= 1 if parent < 0 else node[parent]
        if mapped:
            scores = {k: logistic(objectness_logit) * node[n] for k, n in enumerate(mapped)}
        else:
            sure = [k for k in range(CLASSES) if node[k] > 0.5]
            scores = {sure[-1]: node[sure[-1]]} if sure else {}
        anchor = ((1.5, 2.0), (0.5, 1.0))[a]
        box = [
            (x + logistic(tx)) / COLUMNS,
            (y + logistic(ty)) / ROWS,
            math.exp(tw) * anchor[0] / COLUMNS,
            math.exp(th) * anchor[1] / ROWS,
        ]
        expected += [(k, score, box) for k, score in scores.items() if logistic(objectness_logit) > 0.05 and score > 0.05]
    actual = decoded(head, yolo)
    check(actual, expected)


@pytest.mark.parametrize("point", ["center", "left_top", "right_bottom"])
def test_gaussian_yolo(point: str) -> None:
    (yolo,) = yolo_heads(parse_cfg(f"{GAUSSIAN}{point}\n", "t.cfg"))
    head, expected = random_head(32), []
    for y, x, a, (tx, sx, ty, sy, tw, sw, th, sh, objectness_logit, *raw) in cells(head, 16):
        anchor = ((10.0, 14.0), (81.0, 82.0))[a]
        width, height = math.exp(tw) * anchor[0] / WIDTH, math.exp(th) * anchor[1] / HEIGHT
        side = {"center": 0, "left_top": 0.5, "right_bottom": -0.5}[point]
        box = [
            (x + logistic(tx) * 1.1 - 0.05) / COLUMNS + side * width,
            (y + logistic(ty) * 1.1 - 0.05) / ROWS + side * height,
            width,
            height,
        ]
        sure = 1 - sum(map(logistic, (sx, sy, sw, sh))) / 4
        scores = [logistic(objectness_logit) * logistic(v) * sure for v in raw]
        expected += [(k, score, box) for k, score in enumerate(scores) if logistic(objectness_logit) > 0.05 and score > 0.05]
    check(decoded(head, yolo), expected)


def test_new_coords() -> None:
    yolo = YoloHead(((10.0, 14.0), (81.0, 82.0)), CLASSES, WIDTH, HEIGHT, 2.0, new_coords=True)
    head = (1 / (1 + np.exp(-random_head(24)))).astype(np.float32)
    expected = []
    for y, x, a, (tx, ty, tw, th, objectness, *raw) in cells(head, 12):
        anchor = ((10.0, 14.0), (81.0, 82.0))[a]
        box = [
            (x + 2 * tx - 0.5) / COLUMNS,
            (y + 2 * ty - 0.5) / ROWS,
            (2 * tw) ** 2 * anchor[0] / WIDTH,
            (2 * th) ** 2 * anchor[1] / HEIGHT,
        ]
        expected += [(k, objectness * v, box) for k, v in enumerate(raw) if objectness > 0.05 and objectness * v > 0.05]
    check(decoded(head, yolo), expected)


@pytest.mark.parametrize("root", [0, 1])
def test_detection_of_the_first_yolo(root: int) -> None:
    """Rows of classes of all cells, then of objectness, then of boxes."""
    text = (
        "[net]\nwidth=96\nheight=64\nchannels=3\n[connected]\noutput=68\nactivation=linear\n"
        f"[detection]\nclasses=7\ncoords=4\nside=2\nnum=2\nsqrt={root}\n"
    )
    (yolo,) = yolo_heads(parse_cfg(text, "t.cfg"))
    flat = np.random.Generator(np.random.PCG64(1)).uniform(0.1, 1, 68).astype(np.float32)
    expected = []
    for cell in range(4):
        for box in range(2):
            classes = flat[7 * cell : 7 * cell + 7].astype(float)
            objectness = float(flat[28 + 2 * cell + box])
            x, y, w, h = flat[36 + 4 * (2 * cell + box) :][:4].astype(float).tolist()
            expected_box = [(x + cell % 2) / 2, (y + cell // 2) / 2, *([w * w, h * h] if root else [w, h])]
            expected += [(k, objectness * p, expected_box) for k, p in enumerate(classes) if objectness * p > 0.05]
    check(decoded(flat.reshape(1, 1, 1, 68), yolo), expected)
