# SPDX-License-Identifier: MIT
"""Boxes drawn into images: one colour per class, a label that stays readable and inside the image."""

from __future__ import annotations

import colorsys
from dataclasses import dataclass
from typing import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

# Successive multiples of the golden ratio's fraction spread hues well for any number of classes.
_GOLDEN = 0.618033988749895
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_Area = tuple[int, int, int, int]
"""Left, top, right, bottom, pixels."""
_NEAREST_EDGES, _NEAREST_CHECKED = 32, 96
"""Texts at whose edges room is looked for, and texts that a place is checked against: the nearest ones, so that the work for
a text does not grow with their number. What is farther away can hardly reach a place at the edge of a near one."""


@dataclass(frozen=True)
class DrawnBox:
    """One box to draw: x, y, width, height in pixels; class index for the colour; text above the box."""

    box: tuple[float, float, float, float]
    category: int
    text: str


def class_colour(category: int) -> tuple[int, int, int]:
    """Return a saturated RGB colour for a class index; neighbouring indices look different."""
    red, green, blue = colorsys.hsv_to_rgb((0.02 + category * _GOLDEN) % 1.0, 0.85, 0.95)
    return round(255 * red), round(255 * green), round(255 * blue)


def draw_labels(
    image: NDArray[np.uint8], labels: Sequence[DrawnBox], dashed: Sequence[float] | None = None, min_scale: float = 0.35
) -> NDArray[np.uint8]:
    """Return a copy of an RGB image, uint8 (h, w, 3), with boxes and texts; the first label is drawn last, on top.

    Texts keep clear of each other: above their box, else below it, inside, beside, or wherever is room nearest to it.

    dashed:    corners (x0, y0, x1, y1) of a frame over the boxes and below the texts.
    min_scale: size of the letters in small images.
    """
    canvas = np.ascontiguousarray(image.copy())
    height, width = canvas.shape[:2]
    line = max(1, round((height + width) / 800))
    corners = []
    for label in labels:
        x, y, w, h = label.box
        # cv2 takes 32-bit ints; boxes may reach far beyond the image.
        left, right = (int(np.clip(v, -10 * line, width + 10 * line)) for v in (x, x + w))
        top, bottom = (int(np.clip(v, -10 * line, height + 10 * line)) for v in (y, y + h))
        corners.append((left, top, right, bottom))
    for label, (left, top, right, bottom) in reversed(list(zip(labels, corners, strict=True))):
        cv2.rectangle(canvas, (left, top), (right, bottom), class_colour(label.category), line, cv2.LINE_AA)
    if dashed is not None:
        _dash(canvas, dashed)
    scale = max(min_scale, (height + width) / 3200)
    text_boxes = np.empty((len(labels), 4), np.int64)
    texts, text_corners = 0, []
    for label, box in zip(labels, corners, strict=True):
        size = _text_size(label.text, scale, line)
        corner = _free_place(box, size, (width, height), text_boxes[:texts]) if label.text else (0, 0)
        if label.text:
            text_boxes[texts] = (*corner, corner[0] + size[0], corner[1] + size[1])
            texts += 1
        text_corners.append(corner)
    for label, corner in reversed(list(zip(labels, text_corners, strict=True))):
        _write(canvas, label.text, corner, class_colour(label.category), scale, line)
    return canvas


def _dash(image: NDArray[np.uint8], corners: Sequence[float]) -> None:
    """Draw the truth: white dashes with a dark edge, visible on any ground."""
    x0, y0, x1, y1 = (round(v) for v in corners)
    for (ax, ay), (bx, by) in (((x0, y0), (x1, y0)), ((x1, y0), (x1, y1)), ((x1, y1), (x0, y1)), ((x0, y1), (x0, y0))):
        steps = max(1, max(abs(bx - ax), abs(by - ay)) // 6)
        for step in range(0, steps, 2):
            start = (ax + (bx - ax) * step // steps, ay + (by - ay) * step // steps)
            end = (ax + (bx - ax) * (step + 1) // steps, ay + (by - ay) * (step + 1) // steps)
            cv2.line(image, start, end, (0, 0, 0), 3)
            cv2.line(image, start, end, (255, 255, 255), 1)


def side_by_side(images: Sequence[NDArray[np.uint8]], captions: Sequence[str]) -> NDArray[np.uint8]:
    """Return the images of one size beside each other, below a strip that says what each shows.

    Result: RGB, uint8 (h + strip, n x w, 3).
    """
    height, width = images[0].shape[:2]
    line = max(1, round((height + width) / 800))
    scale = max(0.35, (height + width) / 2400)
    while scale > 0.2 and any(_text_size(text, scale, line)[0] + line > width for text in captions):
        scale *= 0.9
    ground, sides = (32, 32, 32), []
    tall = max(_text_size(text, scale, line)[1] for text in captions) + 2 * line
    for image, text in zip(images, captions, strict=True):
        strip = np.full((tall, width, 3), ground, np.uint8)
        _write(strip, text, (line, line), ground, scale, line)
        sides.append(np.vstack([strip, image]))
    return np.hstack(sides)


def _text_size(text: str, scale: float, line: int) -> tuple[int, int]:
    """Return the width and height of a text with its ground, pixels."""
    (width, height), descent = cv2.getTextSize(_ascii(text), _FONT, scale, max(1, line // 2))
    return width + 2 * line, height + descent + 2 * line


def _ascii(text: str) -> str:
    # The built-in font knows ASCII only.
    return text.encode("ascii", "replace").decode()


def _free_place(box: _Area, size: tuple[int, int], image: tuple[int, int], text_boxes: NDArray[np.int64]) -> tuple[int, int]:
    """Return the upper left corner for a text.

    Of the places inside the image, at its box and at the nearest texts, it is the free one that is nearest to the box's upper
    left corner, above the box first; where none is free, the place that covers least.
    """
    (left, top, right, bottom), (w, h) = box, size
    rightmost, lowest = max(image[0] - w, 0), max(image[1] - h, 0)

    def clamp(x: int, y: int) -> tuple[int, int]:
        return min(max(x, 0), rightmost), min(max(y, 0), lowest)

    # Above the box, else inside it below its upper edge.
    preferred = clamp(left, top - h if top >= h else top)
    if not _covered(np.array([preferred]), size, text_boxes)[0]:
        return preferred
    nearest = np.argsort(np.abs(text_boxes[:, :2] - preferred).sum(axis=1), kind="stable")
    corners = [(right - w, top - h), (left, bottom), (left, top), (left, bottom - h), (right, top), (left - w, top)]
    # Edges of what is taken are where room begins.
    edges = text_boxes[np.sort(nearest[:_NEAREST_EDGES])].tolist()
    corners += [(x, y) for b in edges for x in (left, b[0] - w, b[2]) for y in (b[1] - h, b[3], top - h)]
    candidates = np.array([clamp(x, y) for x, y in corners])
    distances = np.abs(candidates - preferred).sum(axis=1)
    x, y = candidates[np.lexsort((distances, _covered(candidates, size, text_boxes[nearest[:_NEAREST_CHECKED]])))[0]].tolist()
    return x, y


def _covered(corners: NDArray[np.int64], size: tuple[int, int], text_boxes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the pixels of other texts, (n, 4), that a text at each of some places, (m, 2), would cover: (m,)."""
    sides = []
    for axis in (0, 1):  # arrays of one axis each: pairs in one array take twice the time
        starts = corners[:, None, axis]
        sides.append(
            np.maximum(np.minimum(starts + size[axis], text_boxes[:, axis + 2]) - np.maximum(starts, text_boxes[:, axis]), 0)
        )
    covered: NDArray[np.int64] = np.einsum("mn,mn->m", *sides)
    return covered


def _write(
    image: NDArray[np.uint8], text: str, corner: tuple[int, int], colour: tuple[int, int, int], scale: float, line: int
) -> None:
    if not text:
        return
    thickness = max(1, line // 2)
    (x, y), (w, h) = corner, _text_size(text, scale, line)
    descent = cv2.getTextSize(_ascii(text), _FONT, scale, thickness)[1]
    cv2.rectangle(image, (x, y), (x + w, y + h), colour, -1)
    bright = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] > 140
    ink = (0, 0, 0) if bright else (255, 255, 255)
    cv2.putText(image, _ascii(text), (x + line, y + h - descent - line), _FONT, scale, ink, thickness, cv2.LINE_AA)
