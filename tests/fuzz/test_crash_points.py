# SPDX-License-Identifier: MIT
"""Killed at any system call, cut off at any byte, refused any write: what was finished is there, and nothing half."""

from __future__ import annotations

import os
import resource
import shutil
import signal
from pathlib import Path
from typing import Callable

import pytest

from mpnet.errors import StoreError
from mpnet.formats.files import atomic
from mpnet.formats.files.atomic import recover, write_folder, write_link, write_text
from mpnet.sweep.store import Subject, Trial, TrialStore, Work
from tests.fuzz.stopping import every_state, every_stop

Act = Callable[[], object]


def every_37th_stop(folder: Path, prepare: Act, work: Act, check: Callable[[bool], object]) -> int:
    """Return the kills that happen; 37 has no common factor with the two stops of a call."""
    return every_stop(prepare, work, check, 37)


STOPS = pytest.mark.parametrize("stops", [pytest.param(every_state, marks=pytest.mark.slow), every_37th_stop])
Stops = Callable[[Path, Act, Act, Callable[[bool], object]], int]
SUBJECT = Subject("n" * 64, "w" * 64, "d" * 64, "p" * 64)
OLD_FILES = {"result.json": b"old" * 100, "detections.json": b"old"}
NEW_FILES = {"result.json": b"new" * 2_000, "detections.json": b"new"}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@STOPS
@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("previous", [OLD_FILES, None])
def test_publishing_a_result(
    tmp_path: Path, exchange: bool, previous: dict[str, bytes] | None, monkeypatch: pytest.MonkeyPatch, stops: Stops
) -> None:
    """`run`: the old result or the new one, and the next run cleans up."""
    folder = tmp_path / "runs" / "0123456789abcdef"
    if not exchange:
        monkeypatch.setattr(atomic, "_exchange", lambda source, target: False)

    def prepare() -> None:
        shutil.rmtree(tmp_path / "runs", ignore_errors=True)
        if previous is not None:
            write_folder(folder, previous)

    def publish() -> None:
        write_folder(folder, NEW_FILES)
        write_link(folder.parent / "latest", folder.name)

    def check(killed: bool) -> None:
        recover(folder)
        assert [path for path in folder.parent.glob(".*") if not path.is_symlink()] == []
        if previous is not None or not killed:
            assert content(folder) in ([previous, NEW_FILES] if killed else [NEW_FILES])
        else:
            assert not folder.exists() or content(folder) == NEW_FILES
        publish()
        assert content(folder) == NEW_FILES
        assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name, "latest"]

    if previous is None:
        (tmp_path / "runs").mkdir()
    assert stops(tmp_path, lambda: (prepare(), folder.parent.mkdir(exist_ok=True)), publish, check) > 50


@STOPS
def test_writing_a_report_or_an_export(tmp_path: Path, stops: Stops) -> None:
    path = tmp_path / "out" / "report.html"

    def check(killed: bool) -> None:
        assert path.read_text() in (["old", "new" * 5_000] if killed else ["new" * 5_000])
        write_text(path, "next")
        assert [leftover.name for leftover in path.parent.iterdir()] == ["report.html"]

    assert stops(tmp_path, lambda: write_text(path, "old"), lambda: write_text(path, "new" * 5_000), check) > 20


def trials(start: int) -> list[Trial]:
    return [
        Trial(f"{number:06d}", {"AP": number % 400 * 0.25, "weight_bytes": float(number)})
        for number in range(start, start + 20)
    ]


@STOPS
def test_committing_trials(tmp_path: Path, stops: Stops) -> None:
    """`sweep`: all trials of a unit with its work, or none; its claim is free at once."""
    path = tmp_path / "s" / "sweep.sqlite"

    def prepare() -> None:
        shutil.rmtree(path.parent, ignore_errors=True)
        with TrialStore.open(path, SUBJECT) as store:
            store.add(store.context({}), trials(0))

    def work() -> None:
        with TrialStore.open(path, SUBJECT) as store:
            context = store.context({})
            assert store.claim(["unit"]) == ["unit"]
            store.add(context, trials(100), claim="unit", work=Work(1.0, 1.0))

    def check(killed: bool) -> None:
        with TrialStore.open(path, SUBJECT) as store:
            stored_trials = list(store.trials(store.context({})))
            is_complete = stored_trials == trials(0) + trials(100)
            assert is_complete or (killed and stored_trials == trials(0))
            assert store.work() == (Work(1.0, 1.0) if is_complete else Work())
            assert store.claim(["unit"]) == ["unit"]
        assert [leftover.name for leftover in path.parent.iterdir()] == [path.name]

    assert stops(tmp_path, prepare, work, check) > 100


@STOPS
def test_creating_a_store(tmp_path: Path, stops: Stops) -> None:
    path = tmp_path / "s" / "sweep.sqlite"

    def create() -> None:
        with TrialStore.open(path, SUBJECT) as store:
            store.set_note("sweep", "{}")

    def check(killed: bool) -> None:
        with TrialStore.open(path, SUBJECT) as store:
            assert store.add(store.context({}), trials(0)) == 20

    assert stops(tmp_path, lambda: shutil.rmtree(path.parent, ignore_errors=True), create, check) > 100


def test_writes_that_did_not_reach_the_disk(tmp_path: Path) -> None:
    """A power cut may keep any beginning of what was not synced: earlier commits stay, later ones are whole or gone."""
    path = tmp_path / "sweep.sqlite"
    store = TrialStore.open(path, SUBJECT)
    context = store.context({})
    log_sizes = [(os.stat(f"{path}-wal").st_size, 0)]
    for number in range(4):
        store.add(context, trials(100 * number))
        log_sizes.append((os.stat(f"{path}-wal").st_size, 20 * (number + 1)))
    main, wal = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    for length in range(0, len(wal) + 1, 1_999):
        for remainder in (b"", bytes(len(wal) - length), b"\xff" * min(700, len(wal) - length)):
            cut_store = tmp_path / "cut" / "sweep.sqlite"
            shutil.rmtree(cut_store.parent, ignore_errors=True)
            cut_store.parent.mkdir()
            cut_store.write_bytes(main)
            Path(f"{cut_store}-wal").write_bytes(wal[:length] + remainder)
            committed = max((count for size, count in log_sizes if size <= length), default=None)
            if committed is None:
                continue  # before the store itself was there
            with TrialStore.open(cut_store, SUBJECT) as reopened:
                stored_trials = list(reopened.trials(context))
            assert stored_trials == [trial for number in range(committed // 20) for trial in trials(100 * number)]
    store.close()


def test_nothing_takes_its_name_before_the_disk_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: set[str] = set()
    flush, put_in_place = atomic._flush, atomic._put_in_place

    def noted(path: Path) -> None:
        flushed.add(str(path))
        flush(path)

    def placed(scratch: Path, folder: Path) -> None:
        assert {str(scratch), *(str(path) for path in Path(scratch).iterdir())} <= flushed
        flushed.clear()
        put_in_place(scratch, folder)

    monkeypatch.setattr(atomic, "_flush", noted)
    monkeypatch.setattr(atomic, "_put_in_place", placed)
    write_folder(tmp_path / "result", NEW_FILES)
    assert flushed == {str(tmp_path)}


def refused_beyond(limit: int, work: Callable[[], object]) -> bool:
    """Run `work` in a fork that may write files of so many bytes; whether it ended with a StoreError in one line."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            work()
            code = 0
        except StoreError as error:
            code = 2 if "\n" not in str(error) else 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 2)
    return code == 2


def test_any_write_that_is_refused(tmp_path: Path) -> None:
    folder, path = tmp_path / "r" / "result", tmp_path / "s" / "sweep.sqlite"
    write_folder(folder, OLD_FILES)
    with TrialStore.open(path, SUBJECT) as store:
        context = store.context({})
        store.add(context, trials(0))

    def commit() -> None:
        with TrialStore.open(path, SUBJECT) as store:
            store.add(context, trials(100))

    refused = 0
    for limit in range(0, 70_000, 3_500):
        refused += refused_beyond(limit, lambda: write_folder(folder, NEW_FILES))
        assert content(folder) in (OLD_FILES, NEW_FILES)
        assert [leftover.name for leftover in folder.parent.iterdir()] == ["result"]
        refused += refused_beyond(limit, commit)
        with TrialStore.open(path, SUBJECT) as store:
            assert list(store.trials(context)) in (trials(0), trials(0) + trials(100))
    assert refused > 5
