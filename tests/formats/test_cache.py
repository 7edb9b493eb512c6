# SPDX-License-Identifier: MIT
"""The cache on disk: entries are whole or not there, the longest unused go first, and nothing in it is ever needed."""

from __future__ import annotations

import hashlib
import mmap
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from typing import Callable, NoReturn

import numpy as np
import pytest

from mpnet.errors import ConfigError
from mpnet.formats.files import digest
from mpnet.formats.files.cache import DEFAULT_LIMIT_BYTES, FileCache, cache_folder, cache_limit, open_cache
from mpnet.formats.files.digest import file_state, known_digest, remember_digest
from mpnet.kernels import _core
from tests.fuzz.cache import hunt

BLOCKS = [np.arange(1000, dtype=np.float32), np.arange(7, dtype=np.uint8)]


def key_of(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def files(cache: FileCache) -> list[Path]:
    return sorted(path for path in cache.folder.iterdir())


def test_what_is_stored_is_found_read_only_and_aligned(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, 10**6)
    assert cache.load(key_of(1)) is None
    cache.store(key_of(1), BLOCKS)
    blocks = cache.load(key_of(1))
    assert blocks is not None
    assert [block.tobytes() for block in blocks] == [block.tobytes() for block in BLOCKS]  # type: ignore[attr-defined]
    assert [(block.ctypes.data % 64, block.flags.writeable) for block in blocks] == [(0, False)] * 2
    assert cache.load(key_of(2)) is None
    assert cache.usage() == (1, 128 + 4032 + 64)


def test_damage_of_any_byte_is_noticed(tmp_path: Path) -> None:
    """Header, blocks, and what fills both up to 64 bytes."""
    cache = FileCache(tmp_path, 10**6)
    cache.store(key_of(1), [np.arange(9, dtype=np.float32), np.arange(7, dtype=np.uint8)])
    path = files(cache)[0]
    intact = path.read_bytes()
    assert len(intact) == 128 + 64 + 64
    for position in range(len(intact)):
        for length in (1, 8, 64):
            damaged = bytearray(intact)
            damaged[position : position + length] = bytes(byte ^ 16 for byte in damaged[position : position + length])
            path.write_bytes(damaged)
            assert cache.load(key_of(1)) is None, (position, length)
        path.write_bytes(intact[:position])
        assert cache.load(key_of(1)) is None, f"cut to {position} bytes"
    cache.store(key_of(1), BLOCKS)
    assert cache.load(key_of(1)) is not None


def test_a_header_of_any_values_is_read_or_no_entry(tmp_path: Path) -> None:
    """Each word of it, with a checksum that is right."""
    cache = FileCache(tmp_path, 10**6)
    cache.store(key_of(1), BLOCKS)
    path = files(cache)[0]
    header_words = np.frombuffer(path.read_bytes(), np.uint64)
    values = [0, 1, 3, 7, 8, 9, 63, 64, 128, 4000, 4032, 1 << 31, 1 << 32, 1 << 63, (1 << 64) - 64, (1 << 64) - 1]
    for word in range(128 // 8):
        for value in values:
            entry = header_words.copy()
            entry[word] = value
            if word != 1:
                entry[1] = _core.lib.mp_crc32c(0, _core.ffi.from_buffer(entry[2:]), entry[2:].nbytes)
            path.write_bytes(entry.tobytes())
            blocks = cache.load(key_of(1))
            # Other blocks that take the same room are an entry: whoever asked for it looks at them.
            assert blocks is None or sum((block.size + 63) // 64 * 64 for block in blocks) == 4096, (word, value)
            assert blocks is None or word >= 6, (word, value)


def test_entries_damaged_while_two_processes_use_them_change_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPNET_CACHE", "")  # the hunt sets its own
    assert hunt(40, 7)[0] == 0


@pytest.mark.parametrize(("first", "second"), [(16, 24), (16, 4120), (128, 136), (128, 4168)])
def test_words_that_changed_places_are_noticed(tmp_path: Path, first: int, second: int) -> None:
    cache = FileCache(tmp_path, 10**6)
    cache.store(key_of(1), BLOCKS)
    path = files(cache)[0]
    content = bytearray(path.read_bytes())
    content[first : first + 8], content[second : second + 8] = content[second : second + 8], content[first : first + 8]
    path.write_bytes(content)
    assert cache.load(key_of(1)) is None


def test_a_link_is_not_followed_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    cache, target = FileCache(tmp_path / "prepared", 10**6), tmp_path / "target"
    cache.store(key_of(1), BLOCKS)
    entry = files(cache)[0]
    entry.rename(target)
    entry.symlink_to(target)
    content = target.read_bytes()
    assert cache.load(key_of(1)) is None
    cache.store(key_of(1), BLOCKS[:1])
    assert not entry.is_symlink()
    assert target.read_bytes() == content


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, 10**6)
    os.mkfifo(tmp_path / f"{key_of(1)}.mpc")
    assert cache.load(key_of(1)) is None
    cache.store(key_of(1), BLOCKS)
    assert cache.load(key_of(1)) is not None


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_what_others_may_write_is_no_entry(tmp_path: Path, mode: int) -> None:
    cache = FileCache(tmp_path, 10**6)
    cache.store(key_of(1), BLOCKS)
    files(cache)[0].chmod(mode)
    assert cache.load(key_of(1)) is None


def test_another_users_file_is_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FileCache(tmp_path, 10**6)
    cache.store(key_of(1), BLOCKS)
    if os.geteuid() == 0:
        os.chown(files(cache)[0], 12345, -1)
    else:
        other_user = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: other_user)
    assert cache.load(key_of(1)) is None


def test_only_the_user_may_look_into_the_cache(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache" / "prepared", 10**6)
    umask = os.umask(0)
    try:
        cache.store(key_of(1), BLOCKS)
    finally:
        os.umask(umask)
    assert [path.stat().st_mode & 0o777 for path in (cache.folder, files(cache)[0])] == [0o700, 0o600]


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(bytes(10**5))
    os.utime(tmp_path / "mine", (0, 0))
    cache = FileCache(tmp_path, 10**4)
    cache.store(key_of(1), BLOCKS)
    assert (tmp_path / "mine").exists()
    assert cache.usage().entries == 1


@pytest.mark.parametrize("length", [4223, 4224 + 64])
def test_another_length_is_noticed(tmp_path: Path, length: int) -> None:
    cache = FileCache(tmp_path, 10**6)
    cache.store(key_of(1), BLOCKS)
    path = files(cache)[0]
    path.write_bytes(path.read_bytes()[:length].ljust(length, b"\0"))
    assert cache.load(key_of(1)) is None


def test_an_entry_under_another_name_is_not_taken(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, 10**6)
    cache.store(key_of(1), BLOCKS)
    files(cache)[0].rename(tmp_path / f"{key_of(2)}.mpc")
    assert cache.load(key_of(2)) is None


def test_the_longest_unused_go_and_what_was_read_stays(tmp_path: Path) -> None:
    size = 128 + 4032 + 64
    cache = FileCache(tmp_path, 3 * size)
    for number in range(3):
        cache.store(key_of(number), BLOCKS)
        os.utime(tmp_path / f"{key_of(number)}.mpc", (number, number))
    blocks = cache.load(key_of(1))
    assert cache.load(key_of(0)) is not None  # used now: 1 and 0 are younger than 2
    cache.store(key_of(3), BLOCKS)
    assert [cache.load(key_of(number)) is not None for number in range(4)] == [True, True, False, True]
    os.utime(tmp_path / f"{key_of(1)}.mpc", (0, 0))
    cache.store(key_of(4), BLOCKS)
    assert cache.load(key_of(1)) is None
    assert blocks is not None
    assert blocks[0].tobytes() == BLOCKS[0].tobytes()  # type: ignore[attr-defined]


def test_what_was_read_outlives_changes_of_the_file(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, 10**6)
    cache.store(key_of(1), BLOCKS)
    blocks = cache.load(key_of(1))
    with files(cache)[0].open("r+b") as file:
        file.write(b"\xff" * 300)
    assert blocks is not None
    assert [block.tobytes() for block in blocks] == [block.tobytes() for block in BLOCKS]  # type: ignore[attr-defined]


def test_a_file_longer_than_the_limit_is_not_read(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, 10**6)
    (tmp_path / f"{key_of(1)}.mpc").touch(0o600)
    os.truncate(tmp_path / f"{key_of(1)}.mpc", 1 << 40)
    assert cache.load(key_of(1)) is None


def test_what_exceeds_the_limit_alone_is_not_kept(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "none", 4000)
    cache.store(key_of(1), BLOCKS)
    assert not cache.folder.exists()


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = FileCache(tmp_path / "file" / "prepared", 10**6)
    cache.store(key_of(1), BLOCKS)
    assert (cache.load(key_of(1)), cache.usage()) == (None, (0, 0))


def test_a_full_disk_is_no_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_full_disk(suffix: str, prefix: str, folder: Path) -> tuple[int, str]:
        temporary = folder / f"{prefix}part{suffix}"
        temporary.write_bytes(b"")
        return os.open("/dev/full", os.O_WRONLY), str(temporary)

    cache = FileCache(tmp_path, 10**6)
    monkeypatch.setattr(tempfile, "mkstemp", on_full_disk)
    cache.store(key_of(1), BLOCKS)
    assert (cache.load(key_of(1)), files(cache)) == (None, [])


def test_what_killed_processes_left_is_swept_away(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, 10**6)
    for name, age in ((".old.part.mpc", 7200), (".new.part.mpc", 0)):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    cache.store(key_of(1), BLOCKS)
    assert [path.name for path in files(cache)] == [".new.part.mpc", f"{key_of(1)}.mpc"]


def _forked(work: Callable[..., None], *arguments: object) -> multiprocessing.Process:
    worker = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    worker.start()
    return worker  # type: ignore[return-value]


def _cuts(path: Path) -> NoReturn:
    """Cut an entry in place, make it longer again, and put its content back, for ever."""
    intact = path.read_bytes()
    while True:
        with path.open("r+b") as file:
            for size in (0, len(intact), 4096, len(intact)):
                file.truncate(size)
            file.write(intact)


def _reads(folder: Path) -> None:
    expected = bytes(10**6)
    cache = FileCache(folder, 10**7)
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        blocks = cache.load(key_of(1))
        assert blocks is None or blocks[0].tobytes() == expected  # type: ignore[attr-defined]


def test_an_entry_that_is_cut_in_use_is_whole_or_none(tmp_path: Path) -> None:
    """A page of a map that lies behind the end of its file ends the process by SIGBUS."""
    cache = FileCache(tmp_path, 10**7)
    cache.store(key_of(1), [np.zeros(10**6, np.uint8)])
    cutter = _forked(_cuts, files(cache)[0])
    readers = [_forked(_reads, tmp_path) for _ in range(2)]
    for reader in readers:
        reader.join()
    cutter.kill()
    cutter.join()
    assert [reader.exitcode for reader in readers] == [0, 0]


def _as_user(user: int, folder: Path, expected: list[bool]) -> None:
    """Look which of the keys 1, 2, 3 this user finds, and then store all of them. Nothing raises."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    cache = FileCache(folder, 10**6)
    assert [cache.load(key_of(number)) is not None for number in (1, 2, 3)] == expected
    for number in (1, 2, 3):
        cache.store(key_of(number), BLOCKS)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
@pytest.mark.parametrize(("mode", "owner"), [(0o777, 0), (0o1777, 0), (0o777, 12346), (0o755, 12346), (0o700, 12346)])
def test_a_folder_of_somebody_else_or_of_everybody(tmp_path: Path, mode: int, owner: int) -> None:
    """Found are one's own and the administrator's entries; nobody's files are followed, waited for, or in the way."""
    with tempfile.TemporaryDirectory() as space:  # pytest's own folders are closed to others
        os.chmod(space, 0o755)
        folder, target = Path(space) / "prepared", tmp_path / "target"
        cache = FileCache(folder, 10**6)
        for number, user in ((1, 0), (2, 12346), (3, 12345)):
            cache.store(key_of(number), BLOCKS)
            os.chown(folder / f"{key_of(number)}.mpc", user, user)
        target.write_bytes(b"x")
        target.chmod(0o666)
        (folder / f"{key_of(4)}.mpc").symlink_to(target)
        os.chown(folder, owner, owner)
        folder.chmod(mode)
        reachable = mode != 0o700
        worker = _forked(_as_user, 12345, folder, [False, False, reachable])
        worker.join()
        assert worker.exitcode == 0
        assert target.read_bytes() == b"x"
        assert not list(folder.glob(".*"))
        assert [path.stat().st_mode & 0o777 for path in files(cache) if not path.is_symlink()] == [0o600] * 3


def _storm(folder: Path, seed: int) -> None:
    """Make many stores and loads of few keys in a folder that holds half of them; every entry found is whole."""
    random = np.random.default_rng(seed)
    cache = FileCache(folder, 20 * 1100)
    for number in random.integers(0, 40, 400).tolist():
        blocks = cache.load(key_of(number))
        if blocks is None:
            cache.store(key_of(number), [np.full(900, number, np.uint8)])
        elif set(blocks[0].tolist()) != {number}:
            os._exit(1)


def test_several_processes_may_write_at_once(tmp_path: Path) -> None:
    workers = [_forked(_storm, tmp_path, seed) for seed in range(4)]
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert not list(tmp_path.glob(".*"))
    assert FileCache(tmp_path, 20 * 1100).usage().size_bytes <= (20 + 4) * 1100


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPNET_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/mpnet")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path.home() / ".cache" / "mpnet"
    monkeypatch.setenv("MPNET_CACHE", "/own")
    assert cache_folder() == Path("/own")


@pytest.mark.parametrize(
    ("text", "limit"),
    [("", DEFAULT_LIMIT_BYTES), ("0", 0), ("500M", 500 * 10**6), ("2g", 2 * 10**9), (" 3 ", 3), ("10KB", 10**4)],
)
def test_the_limit(monkeypatch: pytest.MonkeyPatch, text: str, limit: int) -> None:
    monkeypatch.setenv("MPNET_CACHE_LIMIT", text)
    assert cache_limit() == limit
    assert (open_cache() is None) == (limit == 0)


@pytest.mark.parametrize("text", ["much", "-1", "1.5G", "2 G B"])
def test_a_limit_that_is_none(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("MPNET_CACHE_LIMIT", text)
    with pytest.raises(ConfigError, match=r"^MPNET_CACHE_LIMIT: '.*' is no size such as 500M or 2G; 0 turns the cache off$"):
        cache_limit()


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make files that were just written count as old ones."""
    monkeypatch.setattr(digest, "SETTLED_SECONDS", -1.0)


@pytest.mark.usefixtures("settled")
def test_a_digest_is_known_until_the_file_is_touched(tmp_path: Path) -> None:
    cache, path, link = FileCache(tmp_path / "cache", 10**6), tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"one")
    link.symlink_to(path)
    state = file_state(path)
    assert state is not None
    assert known_digest(state, cache) is None
    remember_digest(state, key_of(7), cache)
    assert file_state(link) == state
    assert known_digest(state, cache) == key_of(7)
    times = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    changed_state = file_state(path)
    assert changed_state is not None
    assert known_digest(changed_state, cache) is None
    remember_digest(state, key_of(8), cache)  # what was read before the change
    assert known_digest(state, cache) == key_of(7)


def test_a_change_through_a_memory_map_gives_no_old_digest(tmp_path: Path) -> None:
    """Pages that wait to be written back change without another time."""
    cache, path = FileCache(tmp_path / "cache", 10**6), tmp_path / "file"
    path.write_bytes(bytes(4096))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096) as mapped:
        mapped[0] = 1
        time.sleep(0.15)  # more than a tick of the clock
        state = file_state(path)
        assert state is not None
        remember_digest(state, hashlib.sha256(path.read_bytes()).hexdigest(), cache)
        mapped[0] = 2
        changed_state = file_state(path)
    assert changed_state is not None
    assert known_digest(changed_state, cache) in (None, hashlib.sha256(path.read_bytes()).hexdigest())
