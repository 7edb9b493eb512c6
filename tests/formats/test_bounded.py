# SPDX-License-Identifier: MIT
"""Reading files whole within a limit."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from mpnet.errors import FormatError
from mpnet.formats.files.bounded import read_bounded


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
    before = os.stat(path)
    monkeypatch.setattr(os, "stat", lambda _: before)
    path.write_bytes(b"0123456789")
    assert read_bounded(path, 10, "text") == b"0123456789"
    with pytest.raises(FormatError, match=r"larger than 9 B"):
        read_bounded(path, 9, "text")
