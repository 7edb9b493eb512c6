# SPDX-License-Identifier: MIT
"""The decoders of imported heads against the formulas of the programs that they come from, written a second time in float64."""

from __future__ import annotations

from typing import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.detection.decode import decode_head, yolo_heads
from mpnet.detection.preprocess import plan_geometry
from mpnet.errors import FormatError
from mpnet.formats.cfg.read import parse_cfg

WIDTH, HEIGHT, STRIDE, CLASSES = 96, 64, 16, 3
ROWS, COLUMNS = HEIGHT // STRIDE, WIDTH // STRIDE
ANCHORS = np.array([[10.0, 13], [33, 23], [30, 61]])
Doubles = NDArray[np.float64]
Decoded = tuple[Doubles, Doubles]


def head_cfg(channels: int, keys: str) -> str:
    return (
        f"[net]\nwidth={WIDTH}\nheight={HEIGHT}\nchannels=3\n[convolutional]\nfilters={channels}\nsize={STRIDE}\n"
        f"stride={STRIDE}\nactivation=linear\n[yolo]\nclasses={CLASSES}\n{keys}\n"
    )


def s(x: Doubles) -> Doubles:
    return 1 / (1 + np.exp(-x))


def grid() -> Doubles:
    """Return (cells, 2): column and row of each."""
    return np.stack(np.meshgrid(np.arange(COLUMNS), np.arange(ROWS)), axis=-1).reshape(-1, 2).astype(float)


def yolov5(x: Doubles) -> Decoded:
    y = s(x.reshape(ROWS * COLUMNS, 3, 5 + CLASSES))
    xy = (y[..., :2] * 2 - 0.5 + grid()[:, None]) * STRIDE
    return np.concatenate([xy, (y[..., 2:4] * 2) ** 2 * ANCHORS], -1), y[..., 4:5] * y[..., 5:]


def yolov8(x: Doubles) -> Decoded:
    cells = x.reshape(ROWS * COLUMNS, -1)
    bins = np.exp(cells[:, :64].reshape(-1, 4, 16))
    left_top, right_bottom = np.split((bins / bins.sum(-1, keepdims=True)) @ np.arange(16.0), 2, axis=1)
    points = grid() + 0.5
    low, high = (points - left_top) * STRIDE, (points + right_bottom) * STRIDE
    return np.concatenate([(low + high) / 2, high - low], -1)[:, None], s(cells[:, None, 64:])


def yolo26(x: Doubles) -> Decoded:
    """Decode boxes of which one bin is the distance itself."""
    cells = x.reshape(ROWS * COLUMNS, -1)
    low, high = (grid() + 0.5 - cells[:, :2]) * STRIDE, (grid() + 0.5 + cells[:, 2:4]) * STRIDE
    return np.concatenate([(low + high) / 2, high - low], -1)[:, None], s(cells[:, None, 4:])


def rtmdet(x: Doubles, distances: Callable[[Doubles], Doubles]) -> Decoded:
    """Decode as MMDetection's distance2bbox does with points at the cells' corners. distances: of what precedes the classes."""
    cells = x.reshape(ROWS * COLUMNS, -1)
    left_top, right_bottom = np.split(distances(cells[:, :-CLASSES]) * STRIDE, 2, axis=1)
    points = grid() * STRIDE
    low, high = points - left_top, points + right_bottom
    return np.concatenate([(low + high) / 2, high - low], -1)[:, None], s(cells[:, None, -CLASSES:])


def mean_bin(x: Doubles) -> Doubles:
    shares = np.exp(x.reshape(len(x), 4, -1))
    return np.asarray((shares / shares.sum(-1, keepdims=True)) @ np.arange(float(shares.shape[-1])))


def picodet(x: Doubles) -> Decoded:
    """Decode as PaddleDetection's second head of PicoDet does: scores are roots of products with an alignment."""
    cells = x.reshape(ROWS * COLUMNS, -1)
    left_top, right_bottom = np.split(mean_bin(cells[:, :32]), 2, axis=1)
    low, high = (grid() + 0.5 - left_top) * STRIDE, (grid() + 0.5 + right_bottom) * STRIDE
    scores = np.sqrt(s(cells[:, 32 : 32 + CLASSES]) * s(cells[:, -1:]))
    return np.concatenate([(low + high) / 2, high - low], -1)[:, None], scores[:, None]


def oriented(x: Doubles, linear: bool) -> Decoded:
    """Decode as Ultralytics' dist2rbox does: the centre turns with the axes. The corners' upright box."""
    cells = x.reshape(ROWS * COLUMNS, -1)
    left_top, right_bottom, angle_values = cells[:, :2], cells[:, 2:4], cells[:, -1]
    angle = angle_values if linear else (s(angle_values) - 0.25) * np.pi
    turn = np.stack([np.stack([np.cos(angle), -np.sin(angle)], 1), np.stack([np.sin(angle), np.cos(angle)], 1)], 1)
    centre = grid() + 0.5 + (turn @ ((right_bottom - left_top) / 2)[..., None])[..., 0]
    half_corners = np.stack([signs * (left_top + right_bottom) / 2 for signs in np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])])
    corners = (turn @ half_corners[..., None])[..., 0]
    return np.concatenate([centre, np.ptp(corners, axis=0)], -1)[:, None] * STRIDE, s(cells[:, None, 4:-1])


def yolox(x: Doubles) -> Decoded:
    cells = x.reshape(ROWS * COLUMNS, 1, -1)
    boxes = np.concatenate([(cells[..., :2] + grid()[:, None]) * STRIDE, np.exp(cells[..., 2:4]) * STRIDE], -1)
    return boxes, s(cells[..., 4:5]) * s(cells[..., 5:])


def ssd(x: Doubles) -> Decoded:
    cells = x.reshape(ROWS * COLUMNS, -1)
    raw, logits = cells[:, :12].reshape(-1, 3, 4), cells[:, 12:].reshape(-1, 3, CLASSES + 1)
    centre = (grid()[:, None] + 0.5) * STRIDE + raw[..., :2] * 0.1 * ANCHORS
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return np.concatenate([centre, np.exp(raw[..., 2:] * 0.2) * ANCHORS], -1), shares[..., 1:]


def blazeface(x: Doubles) -> Decoded:
    """Decode one class per anchor of the input's own size, linear sizes in y, x order, 6 values, of which 4 are a box."""
    cells = x.reshape(ROWS * COLUMNS, -1)
    raw, logits = cells[:, :12].reshape(-1, 2, 6), cells[:, 12:].reshape(-1, 2, CLASSES)
    raw = raw[..., [1, 0, 3, 2]] / 128
    side = np.array([WIDTH, HEIGHT])
    return np.concatenate([(grid()[:, None] + 0.5) * STRIDE + raw[..., :2] * side, raw[..., 2:] * side], -1), s(logits)


ANCHOR_KEYS = "num=3\nanchors=10,13, 33,23, 30,61\n"
FORMS: dict[str, tuple[int, str, Callable[[Doubles], Decoded]]] = {
    "yolov5": (3 * (5 + CLASSES), f"decoder=yolov5\n{ANCHOR_KEYS}", yolov5),
    "yolov8": (64 + CLASSES, "decoder=yolov8", yolov8),
    "yolo26": (4 + CLASSES, "decoder=yolov8\nreg_max=1", yolo26),
    "yolov8-obb": (4 + CLASSES + 1, "decoder=yolov8_obb\nreg_max=1", lambda x: oriented(x, False)),
    "yolo26-obb": (4 + CLASSES + 1, "decoder=yolov8_obb\nreg_max=1\nlinear=1", lambda x: oriented(x, True)),
    "rtmdet-tiny": (4 + CLASSES, "decoder=rtmdet\nreg_max=1\nlinear=1", lambda x: rtmdet(x, lambda d: d)),
    "rtmdet-m": (4 + CLASSES, "decoder=rtmdet\nreg_max=1", lambda x: rtmdet(x, np.exp)),
    "nanodet-plus": (32 + CLASSES, "decoder=rtmdet\nreg_max=8", lambda x: rtmdet(x, mean_bin)),
    "picodet": (32 + CLASSES + 1, "decoder=picodet\nreg_max=8", picodet),
    "yolox": (5 + CLASSES, "decoder=yolox", yolox),
    "ssd": (3 * (5 + CLASSES), f"decoder=ssd\n{ANCHOR_KEYS}", ssd),
    "blazeface": (
        2 * (6 + CLASSES),
        f"decoder=ssd\nnum=2\nanchors={WIDTH},{HEIGHT},{WIDTH},{HEIGHT}\ncoords=6\nsoftmax=0\nyx=1\n"
        f"linear=1\nvariances={','.join(['0.0078125'] * 4)}\n",
        blazeface,
    ),
}


@pytest.mark.parametrize("name", list(FORMS))
def test_boxes_are_those_of_the_other_program(name: str) -> None:
    channels, keys, formula = FORMS[name]
    network = parse_cfg(head_cfg(channels, keys), "t.cfg")
    assert network.output_shapes == ((ROWS, COLUMNS, channels),)
    x = np.random.default_rng(5).normal(0, 2, (1, ROWS, COLUMNS, channels)).astype(np.float32)
    boxes, scores = formula(x[0].astype(float))
    [head] = yolo_heads(network)
    candidates = decode_head(x, head, [plan_geometry(WIDTH, HEIGHT, WIDTH, HEIGHT, "stretch")], 0.1)
    number, category = np.nonzero(scores.reshape(-1, CLASSES) > 0.1)
    order = np.lexsort((number, -scores.reshape(-1, CLASSES)[number, category], category))
    number, category = number[order], category[order]
    assert len(candidates) == len(number) > 20
    assert candidates.category.tolist() == category.tolist()
    # Some thirty float32 roundings of values up to 10.
    np.testing.assert_allclose(candidates.score, scores.reshape(-1, CLASSES)[number, category], rtol=4e-6)
    sides = np.maximum(boxes[..., 2:], 0)  # the file of detections and metrics know no sides below nothing
    boxes = np.concatenate([boxes[..., :2], sides], -1)
    relative = boxes.reshape(-1, 4)[number] / np.array([WIDTH, HEIGHT, WIDTH, HEIGHT])
    np.testing.assert_allclose(candidates.box, relative, rtol=8e-6, atol=8e-6)


def test_decoder_none_hands_tensors_out_and_finds_nothing() -> None:
    network = parse_cfg(head_cfg(7, "decoder=none"), "t.cfg")
    [head] = yolo_heads(network)
    x = np.full((1, ROWS, COLUMNS, 7), 9, np.float32)
    assert len(decode_head(x, head, [plan_geometry(WIDTH, HEIGHT, WIDTH, HEIGHT, "stretch")], 0.1)) == 0


def test_channels_that_a_decoder_cannot_read_are_refused() -> None:
    with pytest.raises(FormatError, match=r"t.cfg:12: decoder=yolov8 with 1 anchors and 3 classes needs 67 channels"):
        parse_cfg(head_cfg(66, "decoder=yolov8"), "t.cfg")
