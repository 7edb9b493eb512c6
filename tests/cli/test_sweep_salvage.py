# SPDX-License-Identifier: MIT
"""`mpnet sweep --salvage`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Mpnet, document_of
from tests.report.made_store import make_store


@pytest.fixture
def damaged_store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "s.sqlite", count=60)


def test_salvage_replaces_nothing_and_says_when_nothing_is_left(damaged_store: Path, tmp_path: Path, mpnet: Mpnet) -> None:
    (tmp_path / "taken").touch()
    assert (
        "exists already; name another file with --store"
        in mpnet("sweep", "--salvage", damaged_store, "--store", "taken").stderr
    )
    damaged_store.write_bytes(b"SQLite format 3\0" + bytes(100))
    process = mpnet("sweep", "--salvage", damaged_store)
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert "nothing of it can be read" in process.stderr
    assert not (tmp_path / "s-salvaged.sqlite").exists()


def test_the_command_salvages(damaged_store: Path, mpnet: Mpnet) -> None:
    document = document_of(mpnet("sweep", "--salvage", damaged_store, "--json"))
    assert document == {
        "store": str(damaged_store),
        "salvaged": str(damaged_store.with_name("s-salvaged.sqlite")),
        "trials": 60,
        "contexts": 1,
        "lost": [],
    }
    assert "60 trials of" in mpnet("sweep", "--salvage", damaged_store, "--store", "other.sqlite").stdout
