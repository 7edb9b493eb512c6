# SPDX-License-Identifier: MIT
"""Who holds a claim: processes decide on one machine, whatever clocks and process ids say."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import astuple, replace
from pathlib import Path
from typing import Iterator

import pytest

from mpnet.sweep.store import Subject, TrialStore
from mpnet.sweep.store.owners import Owner, Owners, this_process

SUBJECT = Subject("n" * 64, "w" * 64, "d" * 64, "p" * 64)
HOLD = """
import sys, time
from mpnet.sweep.store import Subject, TrialStore
store = TrialStore.open(sys.argv[1], Subject("n" * 64, "w" * 64, "d" * 64, "p" * 64))
print(store.claim(["unit"]), store.owner, flush=True)
time.sleep(600)
"""
CONTAINER = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sweep.sqlite"


def hold(path: Path, *prefix: str) -> subprocess.Popen[str]:
    """Start a process that has claimed `unit`; prefix: a command that starts it elsewhere."""
    process = subprocess.Popen([*prefix, sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("['unit']")
    return process


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    process = hold(path)
    yield process
    process.kill()
    process.wait()


def container() -> list[str]:
    """Return a command that starts others as process 1 of a PID namespace of its own."""
    is_allowed = subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode == 0
    if not is_allowed:
        pytest.skip("SKIPPED: no PID namespaces for this user (unshare)")
    return CONTAINER


def test_a_live_process_keeps_its_claim_whatever_the_clock_says(
    path: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with TrialStore.open(path, SUBJECT) as store:
        real = time.time
        for jump in (0, 660, -660, 10**9):
            monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
            assert store.claim(["unit"]) == []
            assert list(store.claims()) == ["unit"]
        monkeypatch.undo()
        holder.kill()
        holder.wait()
        assert store.claim(["unit"]) == ["unit"]


def test_a_killed_process_1_of_a_container_loses_its_claim_at_once(path: Path) -> None:
    """Process 1 exists in every container, and what died in another one cannot be seen."""
    process = hold(path, *container())
    with TrialStore.open(path, SUBJECT) as store:
        assert store.claim(["unit"]) == []  # it lives, though its process id is that of init here
        process.kill()
        process.wait()
        deadline = time.monotonic() + 10
        while not store.claim(["unit"]):
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.slow
def test_a_container_sees_whether_others_live(path: Path, holder: subprocess.Popen[str]) -> None:
    look = [
        *container(),
        sys.executable,
        "-c",
        "import sys; from mpnet.sweep.store import TrialStore\n"
        "with TrialStore.open(sys.argv[1]) as s: print(s.claim(['unit']))",
        str(path),
    ]
    assert subprocess.run(look, capture_output=True, text=True, check=True).stdout.strip() == "[]"
    holder.kill()
    holder.wait()
    assert subprocess.run(look, capture_output=True, text=True, check=True).stdout.strip() == "['unit']"


@pytest.mark.parametrize(
    "change", [{"locked": "1"}, {"locked": "1", "namespace": "7"}, {"locked": "", "start_ticks": "7"}, {"boot": "earlier"}]
)
def test_a_process_id_that_lives_is_not_enough(path: Path, change: dict[str, str]) -> None:
    """Process ids are reused, and every container has a process 1."""
    process = replace(this_process(), machine="m")
    owners = Owners(path, join=True)
    owners._this = process
    assert owners.is_alive(str(replace(process, **change))) is False
    owners.leave()


@pytest.mark.parametrize(
    "name",
    [
        "board:1:a",
        str(replace(this_process(), boot="x", machine="y")),
        str(replace(this_process(), namespace="7")),
        "",
        "a:b:c",
        "::::",
        "host:" + "9" * 400 + ":a",
        ":".join("9" * 50 for _ in range(8)),
        "host:1",
    ],
    ids=lambda name: name.partition(":")[0][:10],
)
def test_of_other_machines_only_the_heartbeat_is_known(path: Path, name: str) -> None:
    assert Owners(path, join=False).is_alive(name) is None


def test_without_locks_the_process_and_its_start_decide(path: Path) -> None:
    owners = Owners(path, join=False)
    alive = this_process()
    assert owners.is_alive(str(alive)) is True
    child = subprocess.Popen(["sleep", "600"])
    stat = Path(f"/proc/{child.pid}/stat")
    if not stat.exists():
        pytest.skip("SKIPPED: no /proc here")
    running = replace(alive, pid=str(child.pid), start_ticks=stat.read_text().rpartition(")")[2].split()[19])
    assert owners.is_alive(str(running)) is True
    os.kill(child.pid, signal.SIGKILL)
    while "Z" not in stat.read_text().rpartition(")")[2].split()[:1]:
        time.sleep(0.01)
    assert owners.is_alive(str(running)) is False  # though its parent has not noticed yet
    child.wait()
    assert owners.is_alive(str(running)) is False


def test_a_store_has_no_file_of_owners_when_nobody_works_on_it(path: Path) -> None:
    first, second = TrialStore.open(path, SUBJECT), TrialStore.open(path, SUBJECT)
    first.close()
    assert second.claim(["unit"]) == ["unit"]
    with TrialStore.open(path, SUBJECT) as third:
        assert third.claim(["unit"]) == []
    second.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_claims_of_version_0_1_0_end_with_their_process(path: Path) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    with TrialStore.open(path, SUBJECT) as store:
        host = this_process().host
        with sqlite3.connect(path) as direct:
            direct.executemany(
                "INSERT INTO claims VALUES (?, ?, ?)",
                [
                    ("dead", f"{host}:{child.pid}:a", time.time()),
                    ("alive", f"{host}:{os.getpid()}:b", time.time()),
                    ("stale", f"{host}:{os.getpid()}:c", time.time() - 700),
                    ("huge", f"{host}:{10**30}:d", time.time()),
                ],
            )
        direct.close()
        assert store.claim(["dead", "alive", "stale", "huge"]) == ["dead", "stale"]


def test_an_owner_is_read_as_it_was_written() -> None:
    owner = this_process(locked=True)
    assert Owner.parse(str(owner)) == owner
    assert len(astuple(owner)) == 8
