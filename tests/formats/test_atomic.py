"""A file is written completely or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.errors import StoreError
from mpnet.formats.atomic import atomic_file, write_bytes, write_text


def test_writes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a.txt"
    write_text(path, "é\n")
    write_bytes(path, b"second")
    assert path.read_bytes() == b"second"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, OSError])
def test_an_interruption_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    expected = StoreError if error is OSError else error

    def interrupted() -> None:
        with atomic_file(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(expected):
        interrupted()
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    target = tmp_path / "file" / "below.txt"
    with pytest.raises(StoreError) as caught:
        write_text(target, "x")
    assert str(caught.value).startswith(f"{target}: cannot be written: ")
