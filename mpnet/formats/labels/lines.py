# SPDX-License-Identifier: MIT
"""One label file of the YOLO family: lines of a class and a box, a polygon, four corners, or a box with keypoints.

Training programs write all of them beside images of one layout, and all of them say where a box is.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Sequence

from mpnet.errors import FormatError
from mpnet.messages import named, shown

Box = tuple[float, float, float, float]

# Label tools round their numbers; boxes at the edge end up a little outside.
SLACK = 1e-3
_EDGE = 0.02
# Shares of an image that are larger were never shares.
_FAR = 2.0
# What a reader should know where lines hold more than a class and a box, by the kind of line.
_NOTES = {
    "confidence": "{} of {} labels have a sixth column (a confidence), which is not used",
    "polygon": "{} of {} labels are polygons; the box around each is taken",
    "keypoints": "{} of {} labels have keypoints behind their box, which are not used",
}


@dataclass
class LabelKinds:
    """The number of label lines of each kind in a data set. keypoints: (points, numbers a point) where the data set says."""

    keypoints: tuple[int, int] | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def notes(self) -> tuple[str, ...]:
        """Return one sentence for each kind beside plain boxes."""
        total = sum(self.counts.values())
        return tuple(text.format(self.counts[kind], total) for kind, text in _NOTES.items() if self.counts[kind])


def parse_labels(text: str, name: Path | str, class_count: int, kinds: LabelKinds | None = None) -> list[tuple[int, Box]]:
    """Return (class index, (cx, cy, w, h)) of every line of a label file called `name`; empty lines do not count.

    A line is a class and a box; the same with a confidence; a class and the corners of a polygon (of four corners: of a turned
    box), whose upright box is taken; or a class, a box, and keypoints of three numbers each, or as `kinds` says.
    kinds: counts the lines by kind, for notes.
    Raises: FormatError with the line for another number of values, a class index out of range, a centre outside of the image,
    and sizes outside of (0, 1].
    """
    labels: list[tuple[int, Box]] = []
    kinds = LabelKinds() if kinds is None else kinds
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if not words:
            continue
        location = f"{named(name)}:{number}"
        if "," in line:
            raise FormatError(
                f"{location}: {shown(line.strip())} holds commas; values are separated by blanks, and decimals by a point"
            )
        if len(words) < 5:
            raise FormatError(f"{location}: {len(words)} values instead of 5 (class cx cy w h): {shown(line.strip())}")
        index = _class_index(words[0], class_count, location)
        try:
            numbers = [float(word) for word in words[1:]]
        except ValueError:
            raise FormatError(f"{location}: {shown(line.strip())} holds something that is no number") from None
        if not all(map(math.isfinite, numbers)):
            raise FormatError(f"{location}: {shown(line.strip())} holds a number that is not finite")
        kind = _kind_of(numbers, kinds.keypoints)
        if not kind:
            raise FormatError(
                f"{location}: {len(words)} values are neither a box (class cx cy w h), a polygon nor a box with keypoints: "
                f"{shown(line.strip())}"
            )
        if kind == "polygon" and not all(-SLACK <= coordinate <= 1 + SLACK for coordinate in numbers):
            raise FormatError(
                f"{location}: polygon {shown(' '.join(words[1:]))} is not relative to the image (0 to 1); divide pixels by "
                "width and height"
            )
        cx, cy, w, h = _box_around(numbers) if kind == "polygon" else numbers[:4]
        if not (-SLACK <= cx <= 1 + SLACK and -SLACK <= cy <= 1 + SLACK and 0 < w <= 1 + SLACK and 0 < h <= 1 + SLACK):
            raise FormatError(f"{location}: box {shown(' '.join(words[1:]))} {_fault_of((cx, cy, w, h))}")
        kinds.counts[kind] += 1
        labels.append((index, (cx, cy, w, h)))
    return labels


def _fault_of(box: Box) -> str:
    """Return what is wrong with a box, and its remedy."""
    w, h = box[2:]
    if max(map(abs, box)) > _FAR:
        return "is not relative to the image (centre in 0 to 1, size above 0 to 1); divide pixels by width and height"
    if w <= 0 or h <= 0:
        return "has no area; give it its width and height, or remove the line"
    if w > 1 + SLACK or h > 1 + SLACK:
        return "is larger than its image (sizes are shares, above 0 to 1); cut it off at the edges"
    return "has its centre outside of the image (0 to 1); cut it off at the edges, or remove the line"


def _class_index(word: str, class_count: int, location: str) -> int:
    """Return the index that a word gives; `12.0`, which programs that write all numbers alike leave there, is 12."""
    digits = word[: -len(fraction)] if (fraction := word[word.find(".") :] if "." in word else "") else word
    if digits.isascii() and digits.isdigit() and len(digits) < 10 and not fraction.strip(".0") and int(digits) < class_count:
        return int(digits)
    raise FormatError(f"{location}: class {shown(word)} is not an index from 0 to {class_count - 1}; check labels and names")


def _kind_of(numbers: Sequence[float], keypoints: tuple[int, int] | None) -> str:
    """Return what the numbers behind a class are: box, confidence, polygon or keypoints; '' for none of them."""
    count = len(numbers)
    if count == 4:
        return "box"
    if keypoints is not None and count == 4 + keypoints[0] * keypoints[1]:
        return "keypoints"
    if count == 5:
        return "confidence"
    if (count - 4) % 3 == 0 and _is_box(numbers) and all(visibility in (0, 1, 2) for visibility in numbers[6::3]):
        return "keypoints"
    # Keypoints of two numbers look like a polygon, and are one to Ultralytics as well where no `kpt_shape` says otherwise.
    return "polygon" if count >= 6 and count % 2 == 0 else ""


def _is_box(numbers: Sequence[float]) -> bool:
    """Return whether the first four numbers are a box inside the image, which two corners of a polygon seldom are."""
    centres, sizes = numbers[:2], numbers[2:4]
    return all(
        size > 0 and centre - size / 2 >= -_EDGE and centre + size / 2 <= 1 + _EDGE
        for centre, size in zip(centres, sizes, strict=True)
    )


def _box_around(numbers: Sequence[float]) -> Box:
    """Return the centre and size of the upright box around points x, y, x, y, ..."""
    xs, ys = numbers[0::2], numbers[1::2]
    left, right, top, bottom = min(xs), max(xs), min(ys), max(ys)
    return (left + right) / 2, (top + bottom) / 2, right - left, bottom - top
