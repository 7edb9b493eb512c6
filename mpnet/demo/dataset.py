# SPDX-License-Identifier: MIT
"""Scenes as files: PNG images with YOLO labels, one folder per split."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mpnet.demo.scenes import CLASSES, SIZE, SPLIT_LIMIT, SPLITS, LabelledBox, scene

_BLOCK = 8  # scenes handed to a process at once


def write_dataset(
    directory: str | os.PathLike[str], split: str, count: int, progress: Callable[[int], None] | None = None, workers: int = 1
) -> Path:
    """Write scenes as PNG files with YOLO labels; return the folder of the split.

    Result: <directory>/<split>, with images/NNNNN.png, labels/NNNNN.txt (lines "class cx cy w h", relative to the
    image) and classes.names. Files of these names are replaced. The bytes do not depend on `workers`.
    progress: called with the number of scenes done.
    Raises: ValueError for an unknown split or count, OSError if a file cannot be written.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split '{split}'; use one of {', '.join(SPLITS)}")
    if not 0 < count <= SPLIT_LIMIT:
        raise ValueError(f"{count} scenes: write 1 to {SPLIT_LIMIT}")
    root = Path(directory) / split
    for folder in ("images", "labels"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "classes.names").write_text("".join(f"{name}\n" for name in CLASSES), encoding="utf-8")
    with _mapper(min(workers, -(-count // _BLOCK))) as each:
        for done, _ in enumerate(each(partial(_write_scene, root, split), range(count)), 1):
            if progress is not None:
                progress(done)
    return root


@contextmanager
def _mapper(workers: int) -> Iterator[Callable[..., Any]]:
    """Yield `map`, in this process or over several; fresh ones (spawn) inherit no lock and no thread."""
    if workers <= 1:
        yield map
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield partial(pool.imap_unordered, chunksize=_BLOCK)


def _write_scene(root: Path, split: str, index: int) -> None:
    import cv2  # only writing needs it

    image, boxes = scene(split, index)
    path = root / "images" / f"{index:05d}.png"
    ok, encoded = cv2.imencode(".png", np.ascontiguousarray(image[:, :, ::-1]))
    if not ok:
        raise OSError(f"{path}: OpenCV could not encode the image")
    _replace(path, encoded.tobytes())
    _replace(root / "labels" / f"{index:05d}.txt", "".join(map(_label_line, boxes)).encode())


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; not flushed to disk, since it can be drawn again at any time."""
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(content)
    os.replace(part, path)


def _label_line(box: LabelledBox) -> str:
    values = ((box.x0 + box.x1) / (2 * SIZE), (box.y0 + box.y1) / (2 * SIZE), box.width / SIZE, box.height / SIZE)
    return f"{box.label} " + " ".join(f"{value:.9f}" for value in values) + "\n"
