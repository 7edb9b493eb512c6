# SPDX-License-Identifier: MIT
"""Files that broke version 0.1.0, each with what a careful program does. (Images: tests/fuzz/test_readers.py.)"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Mpnet, document_of

RESULTS = ("agreement-list", "cost-text", "layer-without-index", "names-number", "per-class-text", "sources-list", "steps-text")
# What of a store each command makes; 2 is one line.
STORES = {
    "claim-huge-pid": (0, 0),
    "context-empty": (2, 2),
    "findings-list": (2, 2),
    "one-byte": (2, 2),
    "status-truncated-json": (2, 2),
    "value-text": (0, 2),
}


@pytest.mark.parametrize("name", RESULTS)
def test_damaged_results(name: str, shared_data: Path, mpnet: Mpnet) -> None:
    run = shared_data / "hostile" / f"result-{name}"
    for command in (("report", run, "--no-compute"), ("compare", run, run), ("export", run, "--to", "cfg")):
        process = mpnet(*command)
        assert (process.returncode, process.stderr.count("\n")) == (2, 1), process.stderr
        assert "result.json: a damaged result of mpnet: " in process.stderr


@pytest.mark.parametrize("name", STORES)
def test_store_damage(name: str, shared_data: Path, tmp_path: Path, mpnet: Mpnet) -> None:
    store = tmp_path / "s.sqlite"
    shutil.copyfile(shared_data / "hostile" / f"store-{name}.sqlite", store)
    store.chmod(0o644)
    commands = (("sweep", "--status", store), ("report", store, "--no-compute", "-q"))
    for command, code in zip(commands, STORES[name], strict=True):
        process = mpnet(*command)
        assert process.returncode == code, process.stderr
        assert process.stderr.count("\n") == (1 if code else 0)
        assert code == 0 or "the store is damaged: " in process.stderr
    if name != "context-empty":  # its trials belong to nothing
        assert document_of(mpnet("sweep", "--salvage", store, "--json"))["trials"] in (27, 28)


def test_a_store_whose_log_is_not_merged(shared_data: Path, tmp_path: Path, mpnet: Mpnet) -> None:
    folder = tmp_path / "wal-store"
    shutil.copytree(shared_data / "hostile" / "wal-store", folder)
    folder.chmod(0o755)
    process = mpnet("sweep", "--status", folder / "s.sqlite")
    # SQLite's own program finds no trial in it either; tests/sweep/test_store_damage.py has a store with 64.
    assert (process.returncode, process.stderr) == (0, "")
    assert "interrupted, 0 trials" in process.stdout
