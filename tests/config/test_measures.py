# SPDX-License-Identifier: MIT
"""The table of measures, and the documents that list it."""

from __future__ import annotations

import re
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpnet.config import measures
from mpnet.config.measures import MEASURES, measure, objective
from mpnet.data.dataset import Category, Dataset, ImageRecord
from mpnet.data.detections import Detections
from mpnet.errors import ConfigError
from mpnet.model.task import DETECTION, TASKS
from mpnet.trial.measure import Meter


def test_names_are_unique_and_every_row_says_what_it_is() -> None:
    assert len({row.name for row in MEASURES}) == len(MEASURES)
    assert all(re.fullmatch(r"[A-Z].*\.", row.means) for row in MEASURES)


def test_the_documents_list_the_table(repository: Path) -> None:
    """As tools/list_measures.py writes them."""
    documents = runpy.run_path(str(repository / "tools" / "list_measures.py"))["documents"]()
    assert {path: path.read_text(encoding="utf-8") for path in documents} == documents


def test_what_only_runs_store_is_not_given_to_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A metric that comes with others, but that sweeps have no column for."""
    rows = tuple(replace(row, stored="runs") if row.name == "AP75" else row for row in measures.MEASURES)
    monkeypatch.setattr(measures, "MEASURES", rows)
    box = np.array([[10.0, 10.0, 40.0, 40.0]])
    dataset = Dataset.of([ImageRecord(1, "a.jpg", 100, 100, "")], [Category(1, "thing")], [(0, 0, box[0], 1600.0, False)])
    meter, exact = Meter(dataset), Detections.of(1, [0], [0], [0.9], box)
    assert "AP75" in meter.values(exact)
    of_sweeps = measures.names_of("accuracy", stored="trials", task=DETECTION)
    assert set(meter.values(exact, ("AP",))) == set(of_sweeps) - {"darknet_mAP50"}
    assert "AP75" not in of_sweeps


def test_held_out_measures_inherit() -> None:
    row = measure("held_out_head_sqnr_db")
    assert (row.name, row.label, row.unit, row.higher) == ("held_out_head_sqnr_db", "head SQNR, held out", "dB", True)


def test_what_is_stored_is_not_always_what_was_measured() -> None:
    stored_values = np.array([-1.0, 0.0, 99.0, 150.0])
    assert np.array_equal(measure("AP").measured(stored_values), [np.nan, 0.0, 99.0, 150.0], equal_nan=True)
    assert measure("held_out_head_sqnr_db").measured(stored_values).tolist() == [-1.0, 0.0, 99.0, np.inf]
    assert measure("weight_bytes").measured(stored_values).tolist() == stored_values.tolist()


@pytest.mark.parametrize("name", ["ap", "int8_macs", "AP_small", "held_out_AP"])
def test_not_everything_is_an_objective(name: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown objective '{name}'; known are AP, AP50"):
        objective(name)


def test_a_boards_table_makes_latency_the_first_cost() -> None:
    for task in TASKS.values():
        assert task.objectives(baseline=True) == (task.objective, "bit_operations")
        assert task.objectives(baseline=False, latency=True) == (task.quality, "latency_ms")
