# SPDX-License-Identifier: MIT
"""Stores that are damaged, unmerged, or lie where nothing can be written."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mpnet.config.identity import digest_of
from mpnet.errors import StoreError
from mpnet.report.collect.sweep_store import from_store
from mpnet.report.data.report_data import Status
from mpnet.resolve.stored_sweep import read_sweep
from mpnet.sweep.choose.status import sweep_status
from mpnet.sweep.store import FailedTrial, Trial, TrialStore, Work
from mpnet.sweep.store.documents import DOCUMENTS
from mpnet.sweep.store.owners import Owners
from mpnet.sweep.store.records import read_records
from mpnet.sweep.store.ruled_out import RuledOut
from mpnet.sweep.store.salvage import salvage
from tests.formats.changed_json import paths_of, replace_at
from tests.report.made_store import CONTEXT, SUBJECT, make_store

DAMAGES: dict[str, tuple[str, str]] = {
    "value-infinite": ("UPDATE trials SET AP = 9e999 WHERE key = 'fffffffffff'", "AP must be a number from -1 to 100"),
    "value-low": ("UPDATE trials SET weight_bytes = -1.5 WHERE key = 'fffffffffff'", "weight_bytes must be a number from 0"),
    "value-changed": (
        "UPDATE trials SET AP = 12.5 WHERE key = 'fffffffffff'",
        "trial fffffffffff: its checksum does not match",
    ),
    "key-changed": ("UPDATE trials SET key = 'qqqqqqqqqqh' WHERE key = 'fffffffffff'", "its checksum does not match"),
    "heartbeat": ("INSERT INTO claims VALUES ('unit', 'elsewhere:1:x', 'now')", "claim 'unit': heartbeat must be a number"),
    "work": ("INSERT INTO work VALUES (1, 0, 'long')", "work: seconds must be a number from 0"),
    "value-text": (
        "UPDATE trials SET AP = 'x' WHERE key = 'fffffffffff'",
        "trial f{11}: AP must be a number from -1 to 100, not 'x'",
    ),
    "value-blob": ("UPDATE trials SET AP50 = x'00'", "AP50 must be a number"),
    "key-blob": ("UPDATE trials SET key = x'00' WHERE key = 'fffffffffff'", "key must be a precision string"),
    "key-short": ("UPDATE trials SET key = 'f', checksum = NULL WHERE key = 'fffffffffff'", "different numbers of layers"),
    "findings-list": ("UPDATE meta SET value = '[1]' WHERE name = 'findings'", r"findings must be an object, not \[1\]"),
    "status-cut": ("UPDATE meta SET value = '{\"state\"' WHERE name = 'status'", "status is not valid JSON"),
    "sweep-name": ("UPDATE meta SET value = '{\"name\": 5}' WHERE name = 'sweep'", "sweep.name must be a text, not 5"),
    "note-bytes": ("UPDATE meta SET value = CAST(x'ff' AS TEXT) WHERE name = 'sweep'", "a text that is not UTF-8"),
    "subject": ("UPDATE meta SET value = '{}' WHERE name = 'subject'", "subject.network is missing"),
    "context-empty": ("UPDATE contexts SET document = '{\"identity\": {}}'", "context.identity.cfg is missing"),
    "context-cut": ("UPDATE contexts SET document = '{'", "context is not valid JSON"),
}


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    return make_store(tmp_path / "s.sqlite", count=60, findings={"best": None})


def change(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as direct:
        direct.execute(statement)
    direct.close()


def look(path: Path) -> None:
    """Read what `sweep --status` and `report` read."""
    sweep_status(path)
    from_store(read_sweep(path), path, Status("finished", 0))


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_said_in_one_line_with_what_can_be_saved(store_path: Path, name: str) -> None:
    statement, message = DAMAGES[name]
    change(store_path, statement)
    with pytest.raises(StoreError, match=rf"s\.sqlite: the store is damaged: .*{message}.*; `mpnet sweep --salvage") as error:
        look(store_path)
    assert "\n" not in str(error.value)


VALUES = ("x", "", b"\0", -1, -1.5, 1 << 62, 1e301, math.inf, -math.inf, None)
NOTES: dict[str, Any] = {
    "order": {"images": [0, 1]},
    "ruled_out_after/1": {"front": {"fq": 3}},
    "losses": {"1:fq": {"AP": [1.0, 2.0, 0.5, 0.5]}},
    "tested": {
        "1:ff:fq": {"sets": {"all": {"images": 1, "labelled": 1, "quality": None, "losses": {"AP": [0.5] * 8}}}, "drawn": []}
    },
    "conditions/1": {"1:ff:AP:fog:3:fq": {"AP": 1.5}},
    "times/1": {"trial": {"isa": "avx2", "threads": 1, "median_ms": 1.5}},
    "conditions_failed": {"1:ff:AP:fog:3:hq": "layer 0 (conv-1): a value is NaN or infinite"},
    "verified/1:e": {"engine": "e", "version": "1", "rule": "", "notes": [], "rows": []},
}
"""Beside those that every store has."""


def columns(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as direct:
        tables = [row[0] for row in direct.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return [(table, row[1]) for table in tables for row in direct.execute(f"PRAGMA table_info({table})")]


@pytest.mark.slow
def test_a_value_of_any_type_in_any_column_is_read_or_refused_in_one_line(store_path: Path) -> None:
    with TrialStore.open(store_path, SUBJECT) as store:
        failed_trials = [FailedTrial("h" * 11, 0, "layer 0 (conv-1): a value is NaN or infinite")]
        store.add(1, (), work=Work(1.0, 1.0), ruled_out=RuledOut("front", ("fq", "qf")), failed_trials=failed_trials)
        store.set_note("sweep", json.dumps({**store.document("sweep"), "front_name": "front"}))
    intact, refused = store_path.read_bytes(), 0
    for (table, column), value in itertools.product(columns(store_path), VALUES):
        store_path.write_bytes(intact)
        with closing(sqlite3.connect(store_path, isolation_level=None)) as direct:
            direct.execute("PRAGMA synchronous = OFF")
            direct.execute("INSERT INTO claims VALUES ('unit', 'elsewhere:1:x', 1.0)")
            with suppress(sqlite3.IntegrityError):  # SQLite itself refuses a text as the number of a row
                direct.execute(f'UPDATE OR IGNORE {table} SET "{column}" = ?', (value,))
        refused += is_refused(store_path)
    assert refused > 200


@pytest.mark.slow
def test_a_value_of_any_type_in_any_document_is_read_or_refused_in_one_line(store_path: Path) -> None:
    with TrialStore.open(store_path, SUBJECT) as store:
        for name, document in NOTES.items():
            store.set_note(name, json.dumps(document))
            assert store.document(name) == document
    with closing(sqlite3.connect(store_path)) as direct:
        notes = {name: text for name, text in direct.execute("SELECT name, value FROM meta") if text.startswith("{")}
    refused = 0
    for name, text in notes.items():
        document = json.loads(text)
        for path, value in itertools.product(paths_of(document), ("x", -1, 1.5, 1 << 70, True, None, [], {}, [{}])):
            with closing(sqlite3.connect(store_path, isolation_level=None)) as direct:
                direct.execute("PRAGMA synchronous = OFF")
                direct.execute(
                    "UPDATE meta SET value = ? WHERE name = ?", (json.dumps(replace_at(document, path, value)), name)
                )
            refused += is_refused(store_path)
        change(store_path, f"UPDATE meta SET value = '{text}' WHERE name = '{name}'")
    assert refused > 100


def is_refused(path: Path) -> bool:
    """Return whether a store is refused, in one line, by what reads it; any other error fails the test."""
    try:
        sweep_status(path)
        with TrialStore.read(path) as store:
            list(store.trials(1))
            store.failed_trials(1)
            for name in store.notes(""):
                if name.partition("/")[0] in DOCUMENTS:
                    store.document(name)
    except StoreError as error:
        assert "\n" not in str(error)
        return True
    return False


def test_every_bit_of_a_trial_is_held_by_its_checksum(tmp_path: Path) -> None:
    """Bits are flipped in the file where a trial's values lie: it reads as it was, or is refused, or its page is damaged."""
    path = tmp_path / "s.sqlite"
    trials = [Trial(key, {"AP": 41.625, "weight_bytes": 1e6 / 3, "bit_operations": 12345.0}) for key in ("fff", "ffq")]
    with TrialStore.open(path, SUBJECT) as store:
        store.add(store.context(CONTEXT), trials)
    intact = path.read_bytes()
    start = intact.rindex(struct.pack(">d", trials[0].values["weight_bytes"])) - 40
    refused = 0
    for bit in range(0, 8 * 56, 3):
        content = bytearray(intact)
        content[start + bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        try:
            with TrialStore.read(path) as store:
                assert [trial for trial in store.trials(1) if trial not in trials] == []
        except StoreError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize(
    ("name", "trials"),
    [
        ("value-text", 59),
        ("value-blob", 0),
        ("value-changed", 59),
        ("key-changed", 59),
        ("heartbeat", 60),
        ("findings-list", 60),
        ("status-cut", 60),
        ("note-bytes", 60),
        ("subject", 60),
        ("context-empty", 0),
        ("context-cut", 0),
        ("key-blob", 59),
    ],
)
def test_what_is_whole_is_salvaged(store_path: Path, tmp_path: Path, name: str, trials: int) -> None:
    with TrialStore.read(store_path) as store:
        expected = {trial.key: trial for trial in store.trials(1)}
    change(store_path, DAMAGES[name][0])
    original = store_path.read_bytes()
    assert salvage(store_path, tmp_path / "new.sqlite").trials == trials
    assert store_path.read_bytes() == original
    if name.startswith("context"):
        return
    with TrialStore.read(tmp_path / "new.sqlite") as store:
        salvaged = {trial.key: trial for trial in store.trials(1)}
    assert len(salvaged) == trials
    assert all(expected[key] == trial for key, trial in salvaged.items())
    subject = SUBJECT
    if name == "subject":  # what it was about is known from the contexts
        subject = replace(SUBJECT, protocol=digest_of(CONTEXT["identity"]["protocol"]))
    with TrialStore.open(tmp_path / "new.sqlite", subject) as resumed:
        assert resumed.context(CONTEXT) == 1


def test_every_sweep_of_a_store_is_salvaged_with_what_was_found(tmp_path: Path) -> None:
    """Also where a context is lost, so that the others get other numbers."""
    path = tmp_path / "s.sqlite"
    contexts = [{**CONTEXT, "options": f"percentile={n}"} for n in range(3)]
    loss = {"all": [4, -0.5, -1.0, 0.0]}
    row = {"precision": "fq", "options": "", "version": "1", "survived": True, "why": ""}
    with TrialStore.open(path, SUBJECT) as store:
        numbers = [store.context(context) for context in contexts]
        for number in numbers:
            store.add(number, [Trial("fq", {"AP": float(number)})])
            sweep = {"name": "street", "strategy": f"strategy-{number}", "contexts": [number], "objectives": ["AP"]}
            findings = {
                "trials": 1,
                "space": 4,
                "front": [],
                "objectives": ["AP"],
                "baseline": None,
                "best": None,
                "holdout": {"selecting": 1, "held_out": 0},
            }
            for name, document in (("sweep", sweep), ("findings", findings)):
                store.set_note(name, json.dumps(document))
                store.set_note(f"{name}/{number}", json.dumps(document))
            verified = {"engine": "e", "version": "1", "rule": "", "notes": [], "rows": [{**row, "context": number}]}
            store.set_note(f"verified/{number}:e", json.dumps(verified))
        store.set_note("losses", json.dumps({f"{number}:fq": loss for number in numbers}))
        store.set_note("conditions/1", json.dumps({f"{number}:ff:AP:fog:3:fq": {"AP": number} for number in numbers}))
    change(path, "UPDATE contexts SET document = '{' WHERE id = 1")
    salvaged = salvage(path, tmp_path / "new.sqlite")
    assert (salvaged.trials, salvaged.contexts) == (2, 2)
    with TrialStore.read(tmp_path / "new.sqlite") as store:
        assert [
            (record.number, record.contexts, record.sweep.strategy, record.findings is not None, record.is_last)
            for record in read_records(store)
        ] == [(1, (1,), "strategy-2", True, False), (2, (2,), "strategy-3", True, True)]
        assert store.document("losses") == {"1:fq": loss, "2:fq": loss}
        assert store.document("conditions/1") == {"1:ff:AP:fog:3:fq": {"AP": 2}, "2:ff:AP:fog:3:fq": {"AP": 3}}
        assert store.document("verified/2:e")["rows"][0]["context"] == 2
        assert [trial.values["AP"] for number in (1, 2) for trial in store.trials(number)] == [2.0, 3.0]


def test_a_killed_salvage_leaves_nothing_in_the_way(store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    salvaged_path = tmp_path / "new" / "new.sqlite"
    with monkeypatch.context() as patch:
        patch.setattr(TrialStore, "set_note", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        child = os.fork()
        if child == 0:
            salvage(store_path, salvaged_path)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not salvaged_path.exists()
    assert list(salvaged_path.parent.iterdir())
    assert salvage(store_path, salvaged_path).trials == 60
    assert [path.name for path in salvaged_path.parent.iterdir()] == [salvaged_path.name]


def test_a_salvage_interrupted_while_its_store_opens_leaves_nothing(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join = Owners._join

    def interrupted(owners: Owners) -> None:
        join(owners)
        raise KeyboardInterrupt

    folder = tmp_path / "salvaged"
    folder.mkdir()
    monkeypatch.setattr(Owners, "_join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        salvage(store_path, folder / "out.sqlite")
    assert list(folder.iterdir()) == []


def test_a_damaged_page_costs_what_lies_on_it(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    trials = [Trial(f"{number:06d}", {"weight_bytes": float(number)}) for number in range(5_000)]
    with TrialStore.open(path, SUBJECT) as store:
        context = store.context(CONTEXT)
        store.add(context, trials)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = b"\xff" * 4096
    path.write_bytes(content)
    with TrialStore.read(path) as store, pytest.raises(StoreError, match="is damaged: database disk image is malformed"):
        list(store.trials(context))
    salvaged = salvage(path, tmp_path / "new.sqlite")
    assert 4_800 < salvaged.trials < 5_000
    assert salvaged.losses == ("part of the trials (database disk image is malformed)",)
    with TrialStore.read(tmp_path / "new.sqlite") as store:
        assert all(trial == trials[int(trial.key)] for trial in store.trials(1))


def test_reading_leaves_nothing_beside_a_finished_store(store_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in store_path.parent.iterdir()}
    look(store_path)
    assert {path.name: path.read_bytes() for path in store_path.parent.iterdir()} == files


def unmerged(store_path: Path, folder: Path) -> Path:
    """Return a copy of a store as a killed sweep leaves it: its trials in the -wal file alone."""
    store = TrialStore.open(store_path.with_name("live.sqlite"), SUBJECT)
    store.add(store.context(CONTEXT), [Trial(f"{number:06d}", {"AP": float(number)}) for number in range(64)])
    folder.mkdir()
    for suffix in ("", "-wal", "-shm"):
        shutil.copyfile(f"{store.path}{suffix}", folder / f"s.sqlite{suffix}")
    store.close()
    return folder / "s.sqlite"


COUNT = (
    "import sys\nfrom pathlib import Path\nfrom mpnet.sweep.store import TrialStore\n"
    "with TrialStore.read(Path(sys.argv[1])) as store: print(store.count())"
)


@pytest.mark.parametrize("shm", [True, False])
def test_trials_that_are_not_merged_are_read_where_nothing_can_be_written(store_path: Path, tmp_path: Path, shm: bool) -> None:
    path = unmerged(store_path, tmp_path / "away")
    if not shm:
        path.with_name("s.sqlite-shm").unlink()
    contents = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    script = f'mount --bind "{path.parent}" "{path.parent}" && mount -o remount,ro,bind "{path.parent}" && exec "$@"'
    if subprocess.run(["unshare", "--mount", "sh", "-c", script, "-", "true"], capture_output=True).returncode:
        pytest.skip("SKIPPED: no mount namespaces for this user (unshare)")
    process = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "-", sys.executable, "-c", COUNT, str(path)], capture_output=True, text=True
    )
    assert (process.stdout, process.stderr) == ("64\n", "")
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == contents


def test_a_process_that_can_open_no_file_is_told_so(store_path: Path) -> None:
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with closing(sqlite3.connect(store_path)) as writer:
        writer.execute("CREATE TABLE unmerged (number)")  # so that there is a log
        descriptors: list[int] = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, limits[1]))
            with suppress(OSError):
                while True:
                    descriptors.append(os.open("/dev/null", os.O_RDONLY))
            with pytest.raises(StoreError, match="Too many open files"):
                sweep_status(store_path)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_notes_are_held_to_what_sweeps_write(store_path: Path) -> None:
    """What the schema describes is what is written: a store of today reads without a word."""
    with TrialStore.read(store_path) as store:
        documents: dict[str, Any] = {name: store.document(name) for name in ("subject", "sweep", "status", "findings")}
    assert documents["sweep"]["contexts"] == [1]
    look(store_path)
