# SPDX-License-Identifier: MIT
"""Labelled scenes out of nothing but a seed: ten classes, 1 to 10 objects, the same pixels on every machine.

    image, boxes = scene("val", 0)

Everything from the random stream to the blur is integer arithmetic (see stream, raster, texture), so pixels
and labels depend on no library version. Training and validation draw from disjoint seeds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpnet.demo import texture
from mpnet.demo.raster import FULL, ONE, TURN, UNITS, cosine, coverage, fill, sine
from mpnet.demo.shapes import CLUTTER, SHAPES, UPRIGHT, Shape
from mpnet.demo.stream import Stream
from mpnet.demo.texture import Colour, Image

SIZE = 224  # side of a scene in pixels: the input size of the demo network
CLASSES = tuple(SHAPES)
MAX_OBJECTS = 10
SMALLEST = 12  # pixels, longer side of an object
LARGEST = SIZE // 2

# A seed is base + index; a split holds fewer than 2**32 scenes, so the splits cannot meet.
SPLITS = {"train": 1 << 32, "val": 2 << 32}
SPLIT_LIMIT = 1 << 32

_TRIES = 8  # places tried for an object before it is left out
_MIN_CONTRAST = 150  # sum of channel differences between an object and what is behind it
_MAX_LOSS = 20  # percent of an object that later ones may hide
_MIN_VISIBLE = 50  # percent below which a box is dropped


@dataclass(frozen=True)
class LabelledBox:
    """One labelled object: class index and the extent of its visible pixels, right and lower end excluded."""

    label: int
    x0: int
    y0: int
    x1: int
    y1: int

    @property
    def width(self) -> int:
        """Return the width in pixels."""
        return self.x1 - self.x0

    @property
    def height(self) -> int:
        """Return the height in pixels."""
        return self.y1 - self.y0


@dataclass
class _Pose:
    """The place and outline of a shape: pixel offset of its canvas and its rings in canvas coordinates."""

    left: int
    top: int
    side: int
    matrix: tuple[int, int, int, int]  # shape units to fixed-point pixels, scaled by ONE
    centre: tuple[int, int]  # fixed-point pixels in the canvas

    def samples(self, parts: tuple[tuple[tuple[tuple[int, int], ...], ...], ...]) -> NDArray[np.bool_]:
        a, b, c, d = self.matrix
        cx, cy = self.centre
        mask = None
        for part in parts:
            rings = [[(cx + (a * x + b * y) // ONE, cy + (c * x + d * y) // ONE) for x, y in ring] for ring in part]
            drawn = fill(rings, self.side, self.side)
            mask = drawn if mask is None else mask | drawn
        assert mask is not None
        return mask


def _pose(stream: Stream, shape: Shape, length: int, angle: int) -> _Pose:
    """Return a pose whose bounding box is `length` pixels long, at a random place in the scene."""
    squeeze = stream.between(84, 100)
    mirror = -1 if stream.chance(50) else 1
    cos, sin = cosine(angle), sine(angle)
    # Rotation times diag(mirror, squeeze / 100); the scale follows from the extent it gives.
    m = (mirror * cos, -sin * squeeze // 100, mirror * sin, cos * squeeze // 100)
    points = [p for part in shape[0][1] for ring in part for p in ring]
    xs = [(m[0] * x + m[1] * y) // ONE for x, y in points]
    ys = [(m[2] * x + m[3] * y) // ONE for x, y in points]
    extent = max(max(xs) - min(xs), max(ys) - min(ys))
    scale = (length * UNITS, extent)
    matrix = (
        m[0] * scale[0] // scale[1],
        m[1] * scale[0] // scale[1],
        m[2] * scale[0] // scale[1],
        m[3] * scale[0] // scale[1],
    )
    side = length + 4
    middle = ((max(xs) + min(xs)) // 2 * scale[0] // scale[1], (max(ys) + min(ys)) // 2 * scale[0] // scale[1])
    shift = (stream.below(UNITS), stream.below(UNITS))
    centre = (side * UNITS // 2 - middle[0] + shift[0] - UNITS // 2, side * UNITS // 2 - middle[1] + shift[1] - UNITS // 2)
    margin = length // 8  # a little may stick out of the image
    left = stream.between(-margin - 2, SIZE + margin - side + 2)
    top = stream.between(-margin - 2, SIZE + margin - side + 2)
    return _Pose(left, top, side, matrix, centre)


def _window(pose: _Pose) -> tuple[slice, slice, slice, slice]:
    """Return the slices of scene and canvas that overlap: rows, columns, rows, columns."""
    x0, y0 = max(pose.left, 0), max(pose.top, 0)
    x1, y1 = min(pose.left + pose.side, SIZE), min(pose.top + pose.side, SIZE)
    return (slice(y0, y1), slice(x0, x1), slice(y0 - pose.top, y1 - pose.top), slice(x0 - pose.left, x1 - pose.left))


def _blend(view: Image, cover: NDArray[np.uint8], paint: Colour, shade: NDArray[np.int32] | None) -> None:
    """Paint a colour over a view of the image, in place, by coverage in [0, FULL]."""
    alpha = cover.astype(np.int32)[:, :, None]
    target = np.array(paint, dtype=np.int32)[None, None, :]
    if shade is not None:
        target = (target * shade[:, :, None] >> 8).clip(0, 255)
    mixed = view * (FULL - alpha) + target * alpha
    view[:] = (mixed + FULL // 2) // FULL


def _silhouette(shape: Shape, pose: _Pose) -> NDArray[np.uint8]:
    """Return the coverage of the pixels of the pose's window."""
    _, _, rows, columns = _window(pose)
    return coverage(pose.samples(shape[0][1]))[rows, columns]


def _draw(image: Image, stream: Stream, shape: Shape, pose: _Pose, silhouette: NDArray[np.uint8], least: int) -> None:
    """Draw a shape in colours that differ by `least` from what is behind it."""
    rows, columns, canvas_rows, canvas_columns = _window(pose)
    view = image[rows, columns]
    inside = silhouette >= FULL // 2
    count = max(int(inside.sum()), 1)
    behind = view[inside].sum(axis=0, dtype=np.int64) // count
    ground = (int(behind[0]), int(behind[1]), int(behind[2]))
    paints = [texture.colour(stream)]
    while texture.contrast(paints[0], ground) < least:
        paints[0] = texture.colour(stream)
    paints.append(texture.colour(stream))
    while texture.contrast(paints[1], paints[0]) < 200:
        paints[1] = texture.colour(stream)
    height, width = inside.shape
    shade = None
    if stream.chance(60):
        across = np.arange(width, dtype=np.int32) * stream.between(-90, 90) // width
        down = np.arange(height, dtype=np.int32) * stream.between(-90, 90) // height
        shade = 256 + across[None, :] + down[:, None]
    _blend(view, silhouette, paints[0], shade)
    for index, parts in shape[1:]:
        cover = coverage(pose.samples(parts))[canvas_rows, canvas_columns]
        _blend(view, np.minimum(cover, silhouette), paints[index], shade)


def _length(stream: Stream) -> int:
    """Return an object's longer side in pixels: octaves from SMALLEST to LARGEST, few of the smallest."""
    octave = (0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3)[stream.below(12)]
    return min(stream.between(SMALLEST << octave, (SMALLEST << (octave + 1)) - 1), LARGEST)


def _clutter(image: Image, stream: Stream, count: int, longest: int) -> None:
    for _ in range(count):
        shape = CLUTTER[stream.below(len(CLUTTER))]
        pose = _pose(stream, shape, stream.between(8, longest), stream.below(TURN))
        _draw(image, stream, shape, pose, _silhouette(shape, pose), 30)


def render(seed: int) -> tuple[Image, tuple[LabelledBox, ...]]:
    """Return the scene of one seed: RGB uint8 (SIZE, SIZE, 3) and its boxes."""
    stream = Stream(seed)
    image = texture.background(stream, SIZE)
    _clutter(image, stream, stream.between(0, 7), 70)
    owner = np.full((SIZE, SIZE), -1, dtype=np.int32)  # index of the object seen at each pixel
    labels: list[int] = []
    areas: list[int] = []
    seen: list[int] = []  # pixels of each object that are still visible
    wanted = stream.between(1, MAX_OBJECTS)
    # Larger objects first: small ones then lie in front and are not swallowed.
    for length in sorted((_length(stream) for _ in range(wanted)), reverse=True):
        label = stream.below(len(CLASSES))
        name = CLASSES[label]
        shape = SHAPES[name]
        tilt = TURN // 24 if name in UPRIGHT else TURN // 12
        angle = stream.between(-tilt, tilt)
        for _ in range(_TRIES):
            pose = _pose(stream, shape, length, angle)
            rows, columns, _, _ = _window(pose)
            silhouette = _silhouette(shape, pose)
            mask = silhouette >= FULL // 2
            hidden = np.bincount(owner[rows, columns][mask] + 1, minlength=len(labels) + 1)[1:]
            left = [before - int(loss) for before, loss in zip(seen, hidden, strict=True)]
            if all(rest * 100 >= area * (100 - _MAX_LOSS) for rest, area in zip(left, areas, strict=True)):
                _draw(image, stream, shape, pose, silhouette, _MIN_CONTRAST)
                owner[rows, columns][mask] = len(labels)
                labels.append(label)
                areas.append(int(mask.sum()))
                seen = [*left, areas[-1]]
                break
    if stream.chance(25):  # thin things in front of everything
        for _ in range(stream.between(1, 3)):
            bar = CLUTTER[3]
            pose = _pose(stream, bar, stream.between(20, 70), stream.below(TURN))
            silhouette = _silhouette(bar, pose)
            _draw(image, stream, bar, pose, silhouette, 30)
            rows, columns, _, _ = _window(pose)
            owner[rows, columns][silhouette >= FULL // 2] = -1
    image = texture.blur(image, stream)
    image = texture.light(image, stream)
    image = texture.sensor_noise(image, stream)
    return image, _boxes(owner, labels, areas)


def _boxes(owner: NDArray[np.int32], labels: list[int], areas: list[int]) -> tuple[LabelledBox, ...]:
    boxes = []
    for k, label in enumerate(labels):
        seen = owner == k
        rows, columns = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
        if int(seen.sum()) * 100 < areas[k] * _MIN_VISIBLE or not len(rows):
            continue
        boxes.append(LabelledBox(label, int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1))
    return tuple(boxes)


def scene(split: str, index: int) -> tuple[Image, tuple[LabelledBox, ...]]:
    """Return one scene of a split: RGB uint8 (SIZE, SIZE, 3) and its boxes.

    split: "train" or "val"; index: 0 <= index < SPLIT_LIMIT.
    Raises: ValueError for another split or index.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split '{split}'; use one of {', '.join(SPLITS)}")
    if not 0 <= index < SPLIT_LIMIT:
        raise ValueError(f"scene index {index} is outside [0, {SPLIT_LIMIT})")
    return render(SPLITS[split] + index)
