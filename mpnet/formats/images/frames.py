# SPDX-License-Identifier: MIT
"""Frames of a video as images: `clip.mp4#40,20` is frame 40 of a video of which every 20th is taken.

OpenCV's seeking is not exact with every codec, so frames are decoded one after the other, and the last ones are kept for
threads that ask a little out of order.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import DataError
from mpnet.formats.images.read import MAX_PIXELS
from mpnet.messages import named

if TYPE_CHECKING:
    from mpnet.data.dataset import ImageRecord

VIDEO_SUFFIXES: tuple[str, ...] = (".mp4", ".avi", ".mkv", ".mov", ".webm", ".mpg", ".mpeg", ".m4v")
MOST_FRAMES = 500
"""Frames that are taken of a video, evenly spread: neighbours show nearly the same."""
MOST_PROBED = 200_000
"""Frames that are counted where a header cannot be believed: about two hours of a film."""
_KEPT = 16
# Texts that FFmpeg follows to other files and addresses: concat scripts, HLS and DASH lists, session descriptions.
_PLAYLISTS = (b"ffconcat", b"#extm3u", b"<?xml", b"<mpd", b"v=0", b"[playlist]")
_PROBED = 4096
_FRAME = re.compile(r"(.+)#([0-9]{1,9}),([0-9]{1,9})")


def probe_video(path: Path) -> list[ImageRecord]:
    """Return at most MOST_FRAMES frames of a video, evenly spread, as images; their digests are of the pixels.

    Raises: DataError for what is no video, holds no frame, or holds frames that are too large.
    """
    with _Reader(path, 1) as reader:
        promised = reader.count
    step = max(1, -(-promised // MOST_FRAMES))
    records = _records(path, step)
    # A header may promise far more frames than there are: then every step-th of those that are there.
    if len(records) < min(MOST_FRAMES, promised) // 2:
        with _Reader(path, 1) as reader:
            present = reader.count_present(MOST_PROBED)
        step = max(1, -(-present // MOST_FRAMES))
        records = _records(path, step)
    if not records:
        raise DataError(f"{named(path)}: holds no frame that can be decoded; convert the video, for example to MP4")
    return records


def _records(path: Path, step: int) -> list[ImageRecord]:
    """Return every step-th frame as an image, at most MOST_FRAMES."""
    from mpnet.data.dataset import ImageRecord

    records: list[ImageRecord] = []
    with _Reader(path, step) as reader:
        while len(records) < MOST_FRAMES and (frame := reader.frame(len(records) * step)) is not None:
            height, width = frame.shape[:2]
            digest = hashlib.sha256(f"{width} {height} ".encode() + frame.tobytes()).hexdigest()
            records.append(ImageRecord(len(records) + 1, f"{path}#{len(records) * step},{step}", width, height, digest))
    return records


def read_frame(path: str) -> NDArray[np.uint8] | None:
    """Read the frame of a video that `path` names, uint8 (height, width, 3), RGB; None for a path that names none.

    Raises: DataError for a video that is gone or has become shorter.
    """
    named_frame = _FRAME.fullmatch(path)
    if named_frame is None:
        return None
    video, number, step = Path(named_frame[1]), int(named_frame[2]), int(named_frame[3])
    with _LOCK:
        reader = _OPEN.get((str(video), step))
        if reader is None:
            while len(_OPEN) > 1:
                _OPEN.popitem(last=False)[1].close()
            reader = _OPEN[str(video), step] = _Reader(video, step)
        frame = reader.frame(number)
    if frame is None:
        raise DataError(f"{path}: is not there any more; the video has changed")
    return frame


class _Reader:
    """A decoder of a video from its beginning. count: frames that its header promises, at least 1."""

    def __init__(self, path: Path, step: int) -> None:
        self._path, self._step = path, step
        self._kept: OrderedDict[int, NDArray[np.uint8]] = OrderedDict()
        self._open()

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> None:
        os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")  # its words would stand between ours
        import cv2  # not every command needs it

        # FFmpeg takes `http:/host/x` and `tcp:...` for addresses: only what is a file here is opened, by its absolute path.
        if not self._path.is_file():
            raise DataError(f"{named(self._path)}: no such file; check the path of the video")
        with open(self._path, "rb") as file:
            is_playlist = file.read(_PROBED).lstrip().lower().startswith(_PLAYLISTS)
        if is_playlist:
            raise DataError(f"{named(self._path)}: is a list of other files, not a video; name the video itself")
        self._video, self._next = cv2.VideoCapture(str(self._path.absolute())), 0
        if not self._video.isOpened():
            raise DataError(f"{named(self._path)}: is not a video that OpenCV can read; convert it, for example to MP4")
        self.count = max(1, int(self._video.get(cv2.CAP_PROP_FRAME_COUNT)))
        pixels = int(self._video.get(cv2.CAP_PROP_FRAME_WIDTH)) * int(self._video.get(cv2.CAP_PROP_FRAME_HEIGHT))
        if not 0 < pixels <= MAX_PIXELS:
            raise DataError(f"{named(self._path)}: frames of {pixels} pixels are outside the limit of {MAX_PIXELS}")

    def frame(self, number: int) -> NDArray[np.uint8] | None:
        """Return frame `number`, None behind the last one."""
        if number in self._kept:
            return self._kept[number]
        if number < self._next:
            self.close()
            self._open()
        while self._next <= number:
            if not self._video.grab():
                return None
            if self._next % self._step == 0:
                done, pixels = self._video.retrieve()
                if not done:
                    return None
                self._kept[self._next] = np.ascontiguousarray(pixels[:, :, ::-1], dtype=np.uint8)
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            self._next += 1
        return self._kept.get(number)

    def count_present(self, most: int) -> int:
        """Count the frames from here to the end that can be decoded, at most so many."""
        count = 0
        while count < most and self._video.grab():
            count += 1
        return count

    def close(self) -> None:
        """Close the video file."""
        self._video.release()


_LOCK = threading.Lock()
_OPEN: OrderedDict[tuple[str, int], _Reader] = OrderedDict()
