"""What `mpnet detect` needs OpenCV for: pictures with boxes drawn, and videos."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from mpnet.cli.output import progress
from mpnet.cli.picture_files import Source
from mpnet.errors import DataError
from mpnet.formats.atomic import atomic_path, write_bytes
from mpnet.formats.images import MAX_PIXELS
from mpnet.report.draw import Label as DrawnBox
from mpnet.report.draw import draw_labels
from mpnet.trial.network import Box, Label

JPEG_QUALITY = 92
Found = list[Box] | list[Label]
Detect = Callable[[NDArray[np.uint8]], Found]


def write_drawn(target: Path, picture: NDArray[np.uint8], found: Found) -> None:
    """A copy of the picture with boxes, or with its best class. Raises: DataError, StoreError."""
    options = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY] if target.suffix == ".jpg" else []
    done, data = cv2.imencode(target.suffix, _drawn(picture, found)[:, :, ::-1], options)
    if not done:
        raise DataError(f"{target}: the picture cannot be encoded as {target.suffix}")
    write_bytes(target, data.tobytes())


def look_at_video(source: Source, target: Path | None, detect: Detect, key: str, quiet: bool) -> dict[str, Any]:
    """What is found in each frame, as `mpnet detect --json` says it; a copy with it drawn is written to `target`.

    key: of what is found in a frame.

    Raises: DataError for what is no video, StoreError.
    """
    reader = cv2.VideoCapture(str(source.path))
    if not reader.isOpened():
        raise DataError(f"{source.path}: is not a video that OpenCV can read; convert it, for example to MP4")
    rate = reader.get(cv2.CAP_PROP_FPS)
    rate = rate if 0 < rate < 1000 else 25.0
    count = int(reader.get(cv2.CAP_PROP_FRAME_COUNT))
    width, height = int(reader.get(cv2.CAP_PROP_FRAME_WIDTH)), int(reader.get(cv2.CAP_PROP_FRAME_HEIGHT))
    if not 0 < width * height <= MAX_PIXELS:
        raise DataError(f"{source.path}: frames of {width} x {height} pixels are outside the limit of {MAX_PIXELS}")
    frames: list[dict[str, Any]] = []
    with ExitStack() as stack:
        stack.callback(reader.release)
        writer = None
        if target is not None:
            # The part has the target's suffix, by which OpenCV chooses the container.
            part = stack.enter_context(atomic_path(target))
            writer = cv2.VideoWriter(str(part), cv2.VideoWriter.fourcc(*"mp4v"), rate, (width, height))
            stack.callback(writer.release)
            if not writer.isOpened():
                raise DataError(f"{target}: the video cannot be written; check the folder, or leave --out away")
        advance = stack.enter_context(progress(quiet)(source.path.name, count if count > 0 else None))
        for number, frame in enumerate(_frames(reader)):
            found = detect(frame)
            frames.append({
                "frame": number, "time_ms": 1000 * number / rate, key: [one.plain() for one in found],
            })
            if writer is not None:
                writer.write(np.ascontiguousarray(_drawn(frame, found)[:, :, ::-1]))
            advance(1)
        if not frames:
            raise DataError(f"{source.path}: holds no frame that can be decoded")
    return {"path": str(source.path), "kind": "video", "width": width, "height": height, "frames_per_second": rate,
            "frames": frames, "out": None if target is None else str(target)}


def _frames(reader: cv2.VideoCapture) -> Iterator[NDArray[np.uint8]]:
    while True:
        done, frame = reader.read()
        if not done:
            return
        yield np.ascontiguousarray(frame[:, :, ::-1], dtype=np.uint8)


def _drawn(picture: NDArray[np.uint8], found: Found) -> NDArray[np.uint8]:
    boxes = [DrawnBox((one.x, one.y, one.width, one.height), one.category, f"{one.name} {100 * one.score:.0f}%")
             for one in found if isinstance(one, Box)]
    height, width = picture.shape[:2]
    boxes += [DrawnBox((0, 0, width, height), one.category, f"{one.name} {one.score:.2f}")
              for one in found[:1] if isinstance(one, Label)]
    return draw_labels(picture, boxes)
