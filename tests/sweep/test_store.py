# SPDX-License-Identifier: MIT
"""The store: identity, resume, several processes, and what it says when the disk or the file is not right."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mpnet.config.identity import TrialIdentity
from mpnet.errors import StoreError
from mpnet.sweep.store import Subject, Trial, TrialStore
from mpnet.sweep.store.claims import LEASE_SECONDS
from mpnet.sweep.store.owners import host_name

SUBJECT = Subject("n" * 64, "w" * 64, "d" * 64, "p" * 64)


@pytest.fixture
def store(tmp_path: Path) -> TrialStore:
    return TrialStore.open(tmp_path / "sweep.sqlite", SUBJECT)


def trial(number: int) -> Trial:
    """Return a trial whose values follow from its key, so that any row can be checked alone."""
    return Trial(f"{number:06d}", {"AP": number % 400 * 0.25, "weight_bytes": float(number)})


def test_a_trial_comes_back_as_it_went_in(store: TrialStore) -> None:
    context = store.context({"arithmetic": "1"})
    assert store.add(context, [trial(3), trial(1)]) == 2
    assert [t.key for t in store.trials(context)] == ["000001", "000003"]
    assert store.find(context, ["000003", "000009"]) == {"000003": trial(3)}


def test_a_finished_trial_is_not_replaced(store: TrialStore) -> None:
    context = store.context({})
    store.add(context, [trial(1)])
    assert store.add(context, [Trial("000001", {"AP": 99.0})]) == 0
    assert store.find(context, ["000001"]) == {"000001": trial(1)}


IDENTITY = {
    "cfg": "n" * 64,
    "weights": "w" * 64,
    "data": "d" * 64,
    "calibration": None,
    "options": {"weights": {"granularity": "per_channel"}},
    "protocol": {"nms": 0.45},
    "arithmetic": "1",
}


def test_another_arithmetic_is_another_trial(store: TrialStore) -> None:
    first = store.context({"identity": IDENTITY})
    second = store.context({"identity": {**IDENTITY, "arithmetic": "2"}})
    store.add(first, [trial(1)])
    assert store.find(second, ["000001"]) == {}
    assert store.context({"identity": IDENTITY}) == first


@pytest.mark.parametrize("name", sorted(IDENTITY))
def test_the_identity_of_a_trial_holds_everything_that_decides_it(store: TrialStore, name: str) -> None:
    first = store.context({"identity": IDENTITY})
    second = store.context({"identity": {**IDENTITY, name: {"other": 1} if isinstance(IDENTITY[name], dict) else "other"}})
    assert store.trial_digest(first, "ff") != store.trial_digest(second, "ff")
    assert store.trial_digest(first, "ff") != store.trial_digest(first, "fq")
    assert store.trial_digest(first, "ff") == TrialIdentity(**IDENTITY, plan="ff").digests()["trial"]


@pytest.mark.parametrize(("name", "word"), [("network", "network"), ("data", "data set"), ("protocol", "detection protocol")])
def test_a_store_of_something_else_is_refused(store: TrialStore, name: str, word: str) -> None:
    other_subject = dataclasses.replace(SUBJECT, **{name: "x" * 64})
    with pytest.raises(StoreError, match=rf"a store of another {word}.*xxxxxxxxxxxx\); choose another --store"):
        TrialStore.open(store.path, other_subject)


def test_trials_of_other_weights_lie_beside_in_contexts_of_their_own(store: TrialStore) -> None:
    untuned = store.context({"identity": IDENTITY})
    store.add(untuned, [trial(1)])
    subject_note = store.note("subject")
    with TrialStore.open(store.path, dataclasses.replace(SUBJECT, weights="x" * 64)) as reader:
        tuned = reader.context({"identity": {**IDENTITY, "weights": "x" * 64}})
        assert (reader.count(untuned), reader.count(tuned)) == (1, 0)
        assert reader.trial_digest(untuned, "ff") != reader.trial_digest(tuned, "ff")
        assert reader.note("subject") == subject_note  # of the sweep that began the store


def test_many_trials_are_quick_and_small_to_keep(store: TrialStore) -> None:
    context = store.context({})
    for start in range(0, 20_000, 2_000):
        store.add(context, [trial(number) for number in range(start, start + 2_000)])
    store.close()
    assert store.path.stat().st_size < 20_000 * 150
    with TrialStore.read(store.path) as reader:
        assert reader.count(context) == 20_000
        assert len(reader.find(context, [f"{n:06d}" for n in range(0, 20_000, 7)])) == 2_858


def test_work_is_granted_once(store: TrialStore) -> None:
    with TrialStore.open(store.path, SUBJECT) as second_store:
        assert store.claim(["a", "b"]) == ["a", "b"]
        assert second_store.claim(["b", "c"]) == ["c"]
        store.release("b")
        assert second_store.claim(["b"]) == ["b"]
        assert set(store.claims()) == {"a", "b", "c"}


def test_committing_ends_the_claim(store: TrialStore) -> None:
    context = store.context({})
    store.claim(["unit"])
    store.add(context, [trial(1)], claim="unit")
    assert store.claims() == {}


def test_closing_gives_claims_back(store: TrialStore) -> None:
    store.claim(["unit"])
    store.close()
    with TrialStore.open(store.path, SUBJECT) as second_store:
        assert second_store.claim(["unit"]) == ["unit"]


def test_a_claim_of_another_machine_ends_with_its_lease(store: TrialStore) -> None:
    with sqlite3.connect(store.path) as direct:
        direct.execute("INSERT INTO claims VALUES ('fresh', 'board:1:a', ?)", (time.time(),))
        direct.execute("INSERT INTO claims VALUES ('stale', 'board:2:b', ?)", (time.time() - LEASE_SECONDS - 1,))
    direct.close()
    assert store.claim(["fresh", "stale"]) == ["stale"]


def test_a_dead_process_loses_its_claim_at_once(store: TrialStore) -> None:
    child = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    with sqlite3.connect(store.path) as direct:
        direct.execute("INSERT INTO claims VALUES ('unit', ?, ?)", (f"{host_name()}:{child.stdout.strip()}:a", time.time()))
    direct.close()
    assert store.claim(["unit"]) == ["unit"]


def test_an_unknown_value_is_an_error(store: TrialStore) -> None:
    with pytest.raises(StoreError, match="no column for"):
        store.add(store.context({}), [Trial("ff", {"mood": 1.0})])
    assert store.count() == 0


def write_until_killed(path: Path, seed: int) -> None:
    """Claim, compute (nothing) and commit batches of ten; say what is committed on a pipe."""
    store = TrialStore.open(path, SUBJECT)
    context = store.context({"arithmetic": "1"})
    rng = random.Random(seed)
    while True:
        batch = rng.randrange(400)
        name = f"batch-{batch}"
        if store.claim([name]):
            store.add(context, [trial(10 * batch + i) for i in range(10)], claim=name)
            sys.stdout.write(f"{batch}\n")
            sys.stdout.flush()


@pytest.mark.slow
def test_random_kills_lose_nothing(tmp_path: Path) -> None:
    """kill -9 at any moment: whole batches only, all that were reported, values intact, nothing stays locked."""
    path = tmp_path / "sweep.sqlite"
    log = tmp_path / "committed"
    TrialStore.open(path, SUBJECT).close()
    rng = random.Random(20)
    kills = 100  # tests.fuzz.kills does thousands
    for number in range(kills):
        children = []
        for seed in range(2):  # two writers at a time, so that kills also hit one that waits for the other
            pid = os.fork()
            if pid == 0:
                sys.stdout = open(log, "a", encoding="ascii")  # noqa: SIM115  (lives until the kill)
                try:
                    write_until_killed(path, 1000 * number + seed)
                finally:
                    os._exit(1)  # an error in the writer; seen below as an exit that was no kill
            children.append(pid)
        time.sleep(rng.random() * 0.03)
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    with TrialStore.open(path, SUBJECT) as store:
        assert store.claims() == {}
        context = store.context({"arithmetic": "1"})
        trials = {t.key: t for t in store.trials(context)}
        reported = {int(line) for line in log.read_text(encoding="ascii").split("\n")[:-1] if line}
        assert reported, "no writer ever got to its first commit"
        for batch in reported:
            assert all(f"{10 * batch + i:06d}" in trials for i in range(10))
        assert len(trials) % 10 == 0
        assert all(t == trial(int(key)) for key, t in trials.items())
        assert len(store.claim([f"batch-{n}" for n in range(400)])) == 400
    with sqlite3.connect(path) as direct:
        assert direct.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    direct.close()


def test_a_full_disk_is_one_line_and_harms_nothing(store: TrialStore) -> None:
    context = store.context({})
    store.add(context, [trial(1)])
    store.close()
    script = (
        "import sys, signal, resource\n"
        "from mpnet.errors import StoreError\n"
        "from mpnet.sweep.store import Subject, Trial, TrialStore\n"
        f"store = TrialStore.open(sys.argv[1], Subject(*{dataclasses.astuple(SUBJECT)!r}))\n"
        "context = store.context({})\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))\n"
        "try:\n"
        "    for n in range(100):\n"
        "        store.add(context, [Trial(f'{1000 * n + i:06d}', {'AP': 0.5}) for i in range(1000)])\n"
        "except StoreError as error:\n"
        "    print(error)\n"
    )
    child = subprocess.run([sys.executable, "-c", script, str(store.path)], capture_output=True, text=True)
    assert child.stderr == ""
    assert (child.returncode, child.stdout.count("\n")) == (0, 1)
    assert "finished trials are safe" in child.stdout
    assert "run the same command again" in child.stdout
    with TrialStore.open(store.path, SUBJECT) as reopened:
        assert reopened.find(context, ["000001"]) == {"000001": trial(1)}
        assert reopened.add(context, [trial(999_999)]) == 1


def test_sqlite_out_of_room_is_a_full_disk(store: TrialStore) -> None:
    context = store.context({})
    store._db.execute("PRAGMA max_page_count = 20")
    with pytest.raises(StoreError, match=r"sweep.sqlite: the disk is full; finished trials are safe; free some"):
        store.add(context, [trial(n) for n in range(10_000)])
    assert store.count(context) == 0


def test_a_folder_that_cannot_be_written_is_one_line() -> None:
    # /proc refuses new files to every user, root included.
    with pytest.raises(StoreError, match=r"sweep.sqlite: cannot be (opened|written)"):
        TrialStore.open("/proc/mpnet/sweep.sqlite", SUBJECT)


def test_a_store_in_a_read_only_folder_can_be_read(store: TrialStore) -> None:
    context = store.context({})
    store.add(context, [trial(1)])
    store.close()
    store.path.parent.chmod(0o555)
    try:
        with TrialStore.read(store.path) as reader:
            assert reader.find(context, ["000001"]) == {"000001": trial(1)}
    finally:
        store.path.parent.chmod(0o755)


def test_reading_does_not_create_a_store(tmp_path: Path) -> None:
    for opener in (TrialStore.read, TrialStore.open):
        with pytest.raises(StoreError, match="no such store"):
            opener(tmp_path / "missing.sqlite")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be looked at" * 30, b"\0" * 4096])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="not a store"):
        TrialStore.open(path, SUBJECT)
    assert path.read_bytes() == content


def test_another_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as direct:
        direct.execute("CREATE TABLE songs (title TEXT)")
    direct.close()
    content = path.read_bytes()
    with pytest.raises(StoreError, match="not a store of mpnet"):
        TrialStore.open(path, SUBJECT)
    assert path.read_bytes() == content


def test_a_trials_digest_includes_its_calibration_statistics(store: TrialStore) -> None:
    """The stored key is `lessons`."""
    identity = {**IDENTITY, "lessons": "5" * 64}
    context = store.context({"identity": identity, "options": "learnt"})
    learnt = TrialIdentity(**IDENTITY, plan="44", statistics="5" * 64)
    assert store.trial_digest(context, "44") == learnt.digests()["trial"]
    assert learnt.digests()["lessons"] == "5" * 64
