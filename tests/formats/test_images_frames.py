# SPDX-License-Identifier: MIT
"""Videos whose headers lie, and names that are no videos."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

import cv2
import numpy as np
import pytest

from mpnet.errors import DataError
from mpnet.formats.images.frames import probe_video, read_frame


def write_video(path: Path, frames: int) -> None:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10.0, (64, 48))
    for number in range(frames):
        writer.write(np.full((48, 64, 3), 8 * number, np.uint8))
    writer.release()


def test_a_header_that_promises_too_much_costs_no_frames(tmp_path: Path) -> None:
    write_video(tmp_path / "a.avi", 30)
    honest = probe_video(tmp_path / "a.avi")
    data = bytearray((tmp_path / "a.avi").read_bytes())
    length = data.index(b"strh") + 8 + 32  # dwLength of the stream
    total = data.index(b"avih") + 8 + 16  # dwTotalFrames
    for offset in (length, total):
        assert int.from_bytes(data[offset : offset + 4], "little") == 30
        data[offset : offset + 4] = (2**31 - 1).to_bytes(4, "little")
    (tmp_path / "b.avi").write_bytes(data)
    lying = probe_video(tmp_path / "b.avi")
    assert [record.sha256 for record in lying] == [record.sha256 for record in honest]
    assert len(honest) == 30
    assert all(read_frame(record.path) is not None for record in lying[:3])


def test_no_address_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FFmpeg would connect: nothing may arrive at this port."""
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(1)
        port, arrived = server.getsockname()[1], []

        def accept() -> None:
            with contextlib.suppress(TimeoutError):
                arrived.append(server.accept())

        thread = threading.Thread(target=accept)
        thread.start()
        for name in (f"http:/127.0.0.1:{port}/x.mp4", f"tcp:127.0.0.1:{port}", f"http://127.0.0.1:{port}/x.mp4"):
            with pytest.raises(DataError, match="no such file"):
                probe_video(Path(name))
        thread.join()
    assert arrived == []


@pytest.mark.parametrize("text", ["ffconcat version 1.0\nfile a.avi\n", "#EXTM3U\n#EXT-X-VERSION:3\na.avi\n"])
def test_a_list_of_other_files_is_no_video(tmp_path: Path, text: str) -> None:
    write_video(tmp_path / "a.avi", 3)
    (tmp_path / "list.mkv").write_text(text)
    with pytest.raises(DataError, match="is a list of other files, not a video"):
        probe_video(tmp_path / "list.mkv")
