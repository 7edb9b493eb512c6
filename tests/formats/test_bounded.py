# SPDX-License-Identifier: MIT
"""Reading files whole within a limit."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from mpnet.errors import FormatError
from mpnet.formats.files.bounded import decode_text, read_bounded, read_text_bounded, utf8_bytes


def test_the_limit_is_not_reserved(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    tracemalloc.start()
    try:
        assert read_bounded(tmp_path / "a", 1 << 30, "text") == b"0123456789"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_grows_is_read_to_its_end_or_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123")
    stat_result = os.stat(path)
    monkeypatch.setattr(os, "stat", lambda _: stat_result)
    path.write_bytes(b"0123456789")
    assert read_bounded(path, 10, "text") == b"0123456789"
    with pytest.raises(FormatError, match=r"larger than 9 B"):
        read_bounded(path, 9, "text")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le-mark", "utf-16-be-mark", "utf-32"])
def test_text_is_read_in_every_encoding_that_says_which_it_is(tmp_path: Path, encoding: str) -> None:
    text = "[net]\nname=Straße\n"
    marks = {"utf-16-le-mark": b"\xff\xfe" + text.encode("utf-16-le"), "utf-16-be-mark": b"\xfe\xff" + text.encode("utf-16-be")}
    data = marks.get(encoding) or text.encode(encoding)
    assert decode_text(data) == text
    assert utf8_bytes(data) == text.encode()
    (tmp_path / "a.txt").write_bytes(data)
    assert read_text_bounded(tmp_path / "a.txt", 1000, "text", "a text") == text


def test_bytes_that_lie_about_their_encoding_stay_as_they_are() -> None:
    data = b"\xff\xfe\x00\xd8"  # half of a pair alone
    assert utf8_bytes(data) == data
    with pytest.raises(UnicodeDecodeError):
        decode_text(data)
