# SPDX-License-Identifier: MIT
"""Videos and cameras for `mpnet detect`, frame by frame, by OpenCV."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from mpnet.cli.drawing import drawn
from mpnet.cli.output import note, progress
from mpnet.cli.side_by_side import SideBySide, View
from mpnet.errors import DataError
from mpnet.formats.files.atomic import atomic_path
from mpnet.formats.images.read import MAX_PIXELS

SAID_SECONDS = 1.0
"""How often a camera's frames are told of."""
_PRESENT = 0.9
"""Of the frames that a header promises; many count a few that are not there."""
MOST_KEPT = 100_000
"""Frames of which what was found is kept."""
Tell = Callable[[float, float, list[View]], None]
"""(seconds since the start, frames per second since it last told, what is in this frame)."""


def detect_in_video(
    path: Path, target: Path | None, compared: SideBySide, quiet: bool, most: int | None = None
) -> dict[str, Any]:
    """Return what is found in each frame, as `mpnet detect --json` says it; a copy with it drawn goes to `target`.

    most: frames to look at, None: all. Raises: DataError for what is no video, StoreError.
    """
    reader = cv2.VideoCapture(str(path))
    if not reader.isOpened():
        raise DataError(f"{path}: is not a video that OpenCV can read; convert it, for example to MP4")
    count = int(reader.get(cv2.CAP_PROP_FRAME_COUNT))
    with progress(quiet)(path.name, min(filter(None, (count, most)), default=None) if count > 0 else most) as advance:
        document = _looked(reader, str(path), target, compared, most, lambda *_: advance(1), 0.0)
    read, promised = document["decoded_frames"], min(count, most or count)
    if read < _PRESENT * promised:
        note(
            f"{path}: holds {read} frames that can be decoded, not the {count} that its header promises; the file is incomplete"
        )
    return {"path": str(path), "kind": "video", **document}


def detect_from_camera(
    name: str, target: Path | None, compared: SideBySide, tell: Tell, most: int | None = None
) -> dict[str, Any]:
    """Return what is found in each frame of a camera, until `most` frames, its end or Ctrl-C.

    name: a number as the system counts cameras, a device such as /dev/video0, or the address of a stream.
    Raises: DataError for a camera that cannot be opened, StoreError.
    """
    reader = cv2.VideoCapture(int(name) if name.isascii() and name.isdigit() and len(name) < 4 else name)
    if not reader.isOpened():
        there = sorted(str(device) for device in Path("/dev").glob("video*"))
        raise DataError(
            f"camera {name}: cannot be opened; "
            + (
                f"this machine has {', '.join(there)}: is it in use, or not yours to read?"
                if there
                else "this machine has none (/dev/video*); connect one, or name a stream's address"
            )
        )
    document = _looked(reader, f"camera {name}", target, compared, most, tell, SAID_SECONDS)
    return {"path": f"camera {name}", "kind": "camera", **document}


def _looked(
    reader: cv2.VideoCapture,
    name: str,
    target: Path | None,
    compared: SideBySide,
    most: int | None,
    tell: Tell,
    interval: float,
) -> dict[str, Any]:
    rate = reader.get(cv2.CAP_PROP_FPS)
    rate = rate if 0 < rate < 1000 else 25.0
    width, height = int(reader.get(cv2.CAP_PROP_FRAME_WIDTH)), int(reader.get(cv2.CAP_PROP_FRAME_HEIGHT))
    frames: list[dict[str, Any]] = []
    with ExitStack() as stack:
        stack.callback(reader.release)
        if not 0 < width * height <= MAX_PIXELS:
            raise DataError(f"{name}: frames of {width} x {height} pixels are outside the limit of {MAX_PIXELS}")
        writer = None
        begin = reported = time.perf_counter()
        number = since = 0
        try:
            for number, frame in enumerate(_frames(reader, most), start=1):
                views = compared.views(frame)
                if len(frames) < MOST_KEPT:
                    frames.append({"frame": number - 1, "time_ms": 1000 * (number - 1) / rate, **compared.plain(views)})
                if target is not None:
                    copy = drawn(frame, views)
                    if writer is None:
                        writer = _writer(stack, target, rate, copy.shape[1], copy.shape[0])
                    writer.write(np.ascontiguousarray(copy[:, :, ::-1]))
                now = time.perf_counter()
                if now - reported >= interval:
                    tell(now - begin, (number - since) / max(now - reported, 1e-9), views)
                    reported, since = now, number
        except KeyboardInterrupt:  # how people leave a camera; of a video it is none of that
            if not interval or not frames:
                raise
        seconds = time.perf_counter() - begin
        if not frames:
            raise DataError(f"{name}: holds no frame that can be decoded")
    return {
        "width": width,
        "height": height,
        "frames_per_second": rate,
        "seconds": seconds,
        "looked_at_per_second": number / seconds if seconds else None,
        "network_per_second": compared.images / compared.seconds if compared.seconds else None,
        "decoded_frames": number,
        "frames": frames,
        "out": None if target is None else str(target),
    }


def _writer(stack: ExitStack, target: Path, rate: float, width: int, height: int) -> cv2.VideoWriter:
    # The part has the target's suffix, by which OpenCV chooses the container.
    part = stack.enter_context(atomic_path(target))
    writer = cv2.VideoWriter(str(part), cv2.VideoWriter.fourcc(*"mp4v"), rate, (width, height))
    stack.callback(writer.release)
    if not writer.isOpened():
        raise DataError(f"{target}: the video cannot be written; check the folder, or leave --out away")
    return writer


def _frames(reader: cv2.VideoCapture, most: int | None) -> Iterator[NDArray[np.uint8]]:
    left = most
    while left is None or left > 0:
        done, frame = reader.read()
        if not done:
            return
        yield np.ascontiguousarray(frame[:, :, ::-1], dtype=np.uint8)
        left = None if left is None else left - 1
