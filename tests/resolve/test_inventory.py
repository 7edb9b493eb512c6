# SPDX-License-Identifier: MIT
"""What `mpnet list` finds below a folder."""

from __future__ import annotations

from pathlib import Path

from mpnet.formats.documents.typed import as_json
from mpnet.resolve.inventory import inventory
from mpnet.sweep.store import TrialStore
from mpnet.trial.result import Result
from tests.report.made_store import SUBJECT, make_store


def test_a_run_is_listed_with_what_tells_it_apart(result: Result, tmp_path: Path) -> None:
    document = as_json(inventory(tmp_path))
    [row] = document["results"]
    assert row == {
        "folder": str(result.folder),
        "name": result.name,
        "id": result.id,
        "created": result.run.created,
        "latest": True,
        "images": 5,
        "precision": result.run.precision.key,
        "quality": {"AP": result.metrics["AP"]},
        "agreement": None,
        "engine": None,
    }
    assert (document["sweeps"], document["unreadable"]) == ([], [])


def test_what_cannot_be_read_is_listed_with_the_reason(result: Result, tmp_path: Path) -> None:
    (result.folder / "result.json").write_text("{}", encoding="utf-8")
    found = inventory(tmp_path)
    assert found.results == ()
    [row] = found.unreadable
    assert row.path == str(result.folder / "result.json")
    assert "is no result of mpnet" in row.reason


def test_a_sweep_that_works_is_listed_as_running(tmp_path: Path) -> None:
    path = make_store(tmp_path / "s.sqlite", count=50, state="interrupted")
    with TrialStore.open(path, SUBJECT) as writing:
        writing.claim(["unit"])
        assert [row.state for row in inventory(tmp_path).sweeps] == ["running"]
    assert [row.state for row in inventory(tmp_path).sweeps] == ["interrupted"]
