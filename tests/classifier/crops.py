# SPDX-License-Identifier: MIT
"""One object per image: crops of the demo's scenes, labelled by their folder, for networks that classify."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mpnet.demo.scenes import CLASSES, SIZE, LabelledBox, scene
from mpnet.demo.texture import Image


def crops(split: str, scenes: int) -> Iterator[tuple[int, Image]]:
    """Yield (class index, RGB uint8 (h, w, 3)) of every object of the first scenes of a split.

    A crop is wider than high, so that a classifier's centre crop has something to cut off; the object is in the middle
    unless the scene ends there. Raises: ValueError for another split.
    """
    for index in range(scenes):
        image, boxes = scene(split, index)
        for box in boxes:
            yield box.label, _crop(image, box)


def _crop(image: Image, box: LabelledBox) -> Image:
    height = min(max(box.width, box.height) * 5 // 4, SIZE)
    width = min(height * 5 // 4, SIZE)
    left = min(max((box.x0 + box.x1 - width) // 2, 0), SIZE - width)
    top = min(max((box.y0 + box.y1 - height) // 2, 0), SIZE - height)
    return image[top : top + height, left : left + width]


def write_imagefolder(directory: str | os.PathLike[str], split: str, scenes: int) -> Path:
    """Write the crops as PNG files, one folder per class, and classes.names beside them; return the folder of folders.

    Result: <directory>/<split>, with <class>/NNNNN.png numbered over all classes. Files of these names are replaced.
    Raises: ValueError for another split, OSError if a file cannot be written.
    """
    import cv2  # only writing needs it

    root = Path(directory) / split
    for name in CLASSES:
        (root / name).mkdir(parents=True, exist_ok=True)
    (root.parent / "classes.names").write_text("".join(f"{name}\n" for name in CLASSES), encoding="utf-8")
    for number, (label, crop) in enumerate(crops(split, scenes)):
        path = root / CLASSES[label] / f"{number:05d}.png"
        ok, encoded = cv2.imencode(".png", np.ascontiguousarray(crop[:, :, ::-1]))
        if not ok:
            raise OSError(f"{path}: OpenCV could not encode the image")
        path.write_bytes(encoded.tobytes())
    return root
