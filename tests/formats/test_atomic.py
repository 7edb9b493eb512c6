# SPDX-License-Identifier: MIT
"""A file is written completely or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mpnet.errors import StoreError
from mpnet.formats.files.atomic import atomic_file, atomic_path, recover, write_bytes, write_folder, write_link, write_text


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
    with pytest.raises(StoreError) as excinfo:
        write_text(target, "x")
    assert str(excinfo.value).startswith(f"{target}: cannot be written: ")


def test_a_device_or_pipe_is_written_to_not_replaced(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        device = Path(os.devnull)
    write_text(device, "gone")
    assert device.is_char_device()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "through")
    assert os.read(reading, 100) == b"through"
    os.close(reading)
    assert pipe.is_fifo()


def test_a_pipe_that_nobody_reads_and_other_things_are_refused(tmp_path: Path) -> None:
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    with pytest.raises(StoreError, match=r"pipe: cannot be written: No such device or address; check the space"):
        write_text(pipe, "x")
    with pytest.raises(StoreError, match=r"folder: cannot be written: it is a folder; check the space"):
        write_text(folder, "x")
    with pytest.raises(StoreError, match=r"pipe: cannot be written: it is not a regular file"), atomic_path(pipe):
        pytest.fail("a pipe cannot be made whole beside its place")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").readlink() == Path("file")
    assert (tmp_path / "file").read_text() == "new"


KILLED = """
import os, sys
from pathlib import Path
from mpnet.formats.files import atomic
if sys.argv[2] == "two-renames":
    atomic._exchange = lambda one, other: False
real, count = os.rename, 0
def rename(*names):
    global count
    real(*names)
    count += 1
    if count == 1:
        os.kill(os.getpid(), 9)
os.rename = rename
exchange = atomic._exchange
def exchanged(*names):
    if exchange(*names):
        os.kill(os.getpid(), 9)
    return False
atomic._exchange = exchanged
atomic.write_folder(Path(sys.argv[1]), {"a": b"new", "b": b"new"})
"""


@pytest.mark.parametrize("replacement", ["exchange", "two-renames"])
def test_a_writer_that_is_killed_while_it_replaces_loses_nothing(tmp_path: Path, replacement: str) -> None:
    folder = tmp_path / "result"
    write_folder(folder, {"a": b"old"})
    killed = subprocess.run([sys.executable, "-c", KILLED, str(folder), replacement], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(list(tmp_path.iterdir())) == 2
    recover(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} in ({"a": b"old"}, {"a": b"new", "b": b"new"})
    write_folder(folder, {"c": b"next"})
    assert [path.name for path in tmp_path.iterdir()] == ["result"]
    assert [path.name for path in folder.iterdir()] == ["c"]


def test_what_killed_writers_left_goes_and_what_others_write_stays(tmp_path: Path) -> None:
    for name in (".a.html.xyz.part.html", ".a.html.123.part.html", ".other.html.123.part.html"):
        (tmp_path / name).touch()
    with atomic_path(tmp_path / "a.html") as temporary:
        temporary.write_text("first")
        write_text(tmp_path / "a.html", "second")
    assert (tmp_path / "a.html").read_text() == "first"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.html.123.part.html", "a.html"]


def test_a_folder_that_another_process_writes_stays(tmp_path: Path) -> None:
    folder = tmp_path / "result"
    temporary = tmp_path / ".result.abc"
    temporary.mkdir()
    lock = os.open(temporary, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    write_folder(folder, {"a": b""})
    assert temporary.is_dir()
    os.close(lock)
    write_folder(folder, {"a": b""})
    assert not temporary.exists()


def test_many_writers_of_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "result"
    script = (
        "import sys\nfrom pathlib import Path\nfrom mpnet.formats.files.atomic import write_folder, write_link\n"
        "for i in range(30):\n"
        "    write_folder(Path(sys.argv[1]), {'a': sys.argv[2].encode(), 'b': sys.argv[2].encode()})\n"
        "    write_link(Path(sys.argv[1]).parent / 'latest', 'result')"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(folder), str(number)], stderr=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    assert [(writer.wait(), writer.stderr.read() if writer.stderr else "") for writer in writers] == [(0, "")] * 4
    assert len({path.read_bytes() for path in folder.iterdir()}) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "result"]


def test_a_file_that_cannot_be_locked_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_file = os.open

    def refused(path: str, flags: int, *mode: int) -> int:
        if ".part" in str(path) and not flags & os.O_CREAT:
            raise OSError(errno.EIO, "Input/output error")
        return open_file(path, flags, *mode)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(StoreError, match=r"a\.txt: cannot be written: Input/output error"):
        write_text(tmp_path / "a.txt", "x")
    assert list(tmp_path.iterdir()) == []


def test_a_link_that_cannot_take_its_name_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*paths: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(StoreError, match=r"latest: cannot be written: No space left on device"):
        write_link(tmp_path / "latest", "1")
    assert list(tmp_path.iterdir()) == []


def test_a_set_of_files_is_all_or_none_where_the_space_ends(tmp_path: Path) -> None:
    """The first file does not fit, the second would: both keep what they held."""
    program = """
import resource, signal, sys
from pathlib import Path
from mpnet.errors import StoreError
from mpnet.formats.files.atomic import write_files
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    write_files({Path(sys.argv[1]) / "a": b"1" * 200, Path(sys.argv[1]) / "b": b"2" * 50})
except StoreError as error:
    sys.exit(str(error))
"""
    (tmp_path / "a").write_text("old a")
    (tmp_path / "b").write_text("old b")
    process = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert "a: cannot be written" in process.stderr
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old a", "b": "old b"}
