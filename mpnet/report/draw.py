"""Boxes drawn into pictures: one colour per class, a label that stays readable and inside the picture."""

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


@dataclass(frozen=True)
class Label:
    """One box to draw: x, y, width, height in pixels; class index for the colour; text above the box."""

    box: tuple[float, float, float, float]
    category: int
    text: str


def class_colour(category: int) -> tuple[int, int, int]:
    """A saturated RGB colour for a class index; neighbouring indices look different."""
    red, green, blue = colorsys.hsv_to_rgb((0.02 + category * _GOLDEN) % 1.0, 0.85, 0.95)
    return round(255 * red), round(255 * green), round(255 * blue)


def draw_labels(picture: NDArray[np.uint8], labels: Sequence[Label]) -> NDArray[np.uint8]:
    """A copy of an RGB picture, uint8 (h, w, 3), with boxes and texts; the first label is drawn last, on top."""
    out = np.ascontiguousarray(picture.copy())
    height, width = out.shape[:2]
    line = max(1, round((height + width) / 800))
    scale = max(0.35, (height + width) / 3200)
    for label in reversed(labels):
        colour = class_colour(label.category)
        x, y, w, h = label.box
        # cv2 takes 32-bit ints; boxes may reach far beyond the picture.
        left, right = (int(np.clip(v, -10 * line, width + 10 * line)) for v in (x, x + w))
        top, bottom = (int(np.clip(v, -10 * line, height + 10 * line)) for v in (y, y + h))
        cv2.rectangle(out, (left, top), (right, bottom), colour, line, cv2.LINE_AA)
        _write(out, label.text, left, top, colour, scale, line)
    return out


def _write(
    out: NDArray[np.uint8], text: str, left: int, top: int, colour: tuple[int, int, int], scale: float, line: int
) -> None:
    if not text:
        return
    # The built-in font knows ASCII only.
    shown = text.encode("ascii", "replace").decode()
    height, width = out.shape[:2]
    thickness = max(1, line // 2)
    (text_w, text_h), below = cv2.getTextSize(shown, _FONT, scale, thickness)
    box_h = text_h + below + 2 * line
    x = min(max(left, 0), max(width - text_w - 2 * line, 0))
    # Above the box, else inside it below its upper edge.
    y = top - box_h if top >= box_h else min(max(top, 0), max(height - box_h, 0))
    cv2.rectangle(out, (x, y), (x + text_w + 2 * line, y + box_h), colour, -1)
    bright = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] > 140
    ink = (0, 0, 0) if bright else (255, 255, 255)
    cv2.putText(out, shown, (x + line, y + text_h + line), _FONT, scale, ink, thickness, cv2.LINE_AA)
