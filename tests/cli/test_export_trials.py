# SPDX-License-Identifier: MIT
"""All trials of a sweep as Parquet, CSV and a DataFrame: every bit of every figure, and what was measured on what."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mpnet.api import trials
from mpnet.errors import StoreError
from mpnet.sweep.store import TrialStore
from tests.cli.conftest import Mpnet, document_of, run_program
from tests.networks import write_experiment
from tests.report.made_store import CONTEXT, SUBJECT, make_store

OPTIONS = "{quantization: {weights.granularity: [per_tensor, per_channel]}}"
SWEEP = f"sweep={{strategy: one_at_a_time, precisions: [fp32, int8], holdout: 0, space: {OPTIONS}}}"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the document of a sweep over two option sets, whose store tests only read."""
    folder = tmp_path_factory.mktemp("swept")
    sweep = ("sweep", write_experiment(folder), "--set", SWEEP, "--workers", "1", "--json")
    document: dict[str, Any] = document_of(run_program(folder, *sweep))
    return document


def read_values(path: str) -> dict[tuple[str, str], dict[str, float]]:
    with TrialStore.read(path) as store:
        options = {number: str(document["options"]) for number, document in store.contexts().items()}
        return {(t.key, options[n]): dict(t.values) for n in options for t in store.trials(n)}


def test_csv_has_every_trial_and_every_bit(mpnet: Mpnet, swept: dict[str, Any], tmp_path: Path) -> None:
    table_path = tmp_path / "all" / "trials.csv"
    document = document_of(mpnet("export", swept["store"], "-o", table_path, "--json"))
    stored_values = read_values(swept["store"])
    assert document["trials"] == len(stored_values) == swept["known"]
    assert len({options for _, options in stored_values}) == 2
    with open(table_path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    table_values = {}
    for row in rows:
        layers = [row[name] for name in row if name.startswith("conv-")]
        assert "".join({"fp32": "f", "int8": "q"}[name] for name in layers) == row["precision"]
        key = (row["precision"], row["options"])
        table_values[key] = {name: float(row[name]) for name in stored_values[key]}
    assert table_values == stored_values
    description = json.loads(table_path.with_suffix(".json").read_text(encoding="utf-8"))
    assert description["digests"]["weights"]
    assert description["protocol"]["images"] == swept["images"]
    assert len(description["contexts"]) == 2


@pytest.mark.slow
def test_parquet_and_data_frames_have_the_same(mpnet: Mpnet, swept: dict[str, Any], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("pandas")
    table_path = tmp_path / "trials.parquet"
    assert mpnet("export", swept["store"], "-o", table_path).returncode == 0
    table = parquet.read_table(table_path)
    description = json.loads(table.schema.metadata[b"mpnet"])
    frame = trials(swept["store"])
    assert frame.attrs["mpnet"] == description
    stored_values = read_values(swept["store"])
    for rows in (table.to_pylist(), frame.to_dict("records")):
        row_of = {(row["precision"], row["options"]): row for row in rows}
        assert row_of.keys() == stored_values.keys()
        for key, values in stored_values.items():
            assert {name: row_of[key][name] for name in values} == values
    layers = [name for name in table.column_names if name.startswith("conv-")]
    assert {value for name in layers for value in table[name].to_pylist()} == {"fp32", "int8"}


@pytest.fixture
def store_of_many_options(tmp_path: Path) -> Path:
    """Return a store of 130 option sets with one trial each, whose layers have names that a spreadsheet would compute."""
    path = make_store(tmp_path / "many.sqlite", count=1)
    with TrialStore.open(path, SUBJECT) as store:
        [trial] = store.trials(store.document("sweep")["contexts"][0])
        contexts = []
        for number in range(130):
            identity = {**CONTEXT["identity"], "options": {"number": number}}
            contexts.append(store.context({**CONTEXT, "identity": identity, "options": f"=options({number})"}))
            store.add(contexts[-1], [trial])
        names = [f"@SUM({index})" for index in range(len(trial.key))]
        layers = [{"index": index, "name": name, "parameters": 1} for index, name in enumerate(names)]
        store.set_note("sweep", json.dumps({**store.document("sweep"), "contexts": contexts, "layers": layers}))
    return path


def test_a_csv_holds_no_formula(mpnet: Mpnet, store_of_many_options: Path, tmp_path: Path) -> None:
    assert document_of(mpnet("export", store_of_many_options, "-o", tmp_path / "t.csv", "--json"))["trials"] == 130
    with open(tmp_path / "t.csv", encoding="utf-8", newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]
    assert {"'@SUM(0)", "'=options(129)"} <= set(cells)


def test_more_option_sets_than_a_byte_counts_are_kept_apart(mpnet: Mpnet, store_of_many_options: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert mpnet("export", store_of_many_options, "-o", tmp_path / "t.parquet").returncode == 0
    table = parquet.read_table(tmp_path / "t.parquet")
    assert table["options"].to_pylist() == [f"=options({number})" for number in range(130)]


def test_a_table_of_nothing_is_said(mpnet: Mpnet, swept: dict[str, Any], experiment: Path, tmp_path: Path) -> None:
    store = swept["store"]
    for source, extra, message in (
        (experiment, ("-o", tmp_path / "x.csv"), "is no store of a sweep"),
        (f"{store}:smallest", ("-o", tmp_path / "x.csv"), "a table is of all trials"),
        (f"{store}:7", ("-o", tmp_path / "x.csv"), "has no sweep 7"),
        (store, ("--to", "csv"), "name a file with -o"),
        (store, ("--to", "csv", "-o", tmp_path / "x.json"), "another suffix"),
    ):
        refused = mpnet("export", source, *extra)
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert message in refused.stderr
    assert not list(tmp_path.glob("x.*"))


def test_a_damaged_store_leaves_no_half_table(mpnet: Mpnet, swept: dict[str, Any], tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    shutil.copy(swept["store"], copy)
    with TrialStore.open(copy) as store:
        store._db.execute("UPDATE trials SET AP = 12.5 WHERE key LIKE 'q%'")
    table_path = tmp_path / "trials.csv"
    refused = mpnet("export", copy, "-o", table_path)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert not table_path.exists()
    assert not table_path.with_suffix(".json").exists()
    with pytest.raises(StoreError):
        trials(tmp_path)
