# SPDX-License-Identifier: MIT
"""The same report a second time runs nothing again, and whatever decides it differs makes it new."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator

import pytest

from mpnet.progress import Advance
from mpnet.report.collect.report import collect
from mpnet.report.data.report_data import ReportData
from mpnet.report.html import page
from tests.cli.conftest import Mpnet, document_of

SWEEP = ("--set", "sweep={strategy: one_at_a_time, precisions: [fp32, int8], holdout: 0}", "--workers", "1")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MPNET_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Stages:
    """Progress that remembers what was begun."""

    def __init__(self) -> None:
        self.names: list[str] = []

    @contextmanager
    def __call__(self, name: str, total: int | None) -> Iterator[Advance]:
        self.names.append(name)
        yield lambda _: None


def collected(*sources: Path, **options: Any) -> tuple[ReportData, list[str]]:
    stages = Stages()
    return collect(sources, progress=stages, **options), stages.names


def timeless(data: ReportData) -> str:
    return page.render(replace(data, costs=(), doubt=""))


@pytest.mark.slow
def test_the_same_report_of_a_sweep_runs_nothing_again(mpnet: Mpnet, experiment: Path) -> None:
    store = experiment.parent / document_of(mpnet("sweep", experiment, *SWEEP, "--json"))["store"]
    report, stage_names = collected(store)
    assert "front" in stage_names
    assert report.omissions == ()
    second_report, stage_names = collected(store)
    assert "front" not in stage_names
    assert timeless(second_report) == timeless(report)
    table = report.configurations
    other_key = next(key for key in table.keys if key != table.keys[table.chosen])
    for options in ({"draws": 100}, {"score": 0.5}, {"choose": other_key}):
        other_report, stage_names = collected(store, **options)
        assert "front" in stage_names, options
        assert timeless(other_report) != timeless(report), options
    # What is not there any more, or is not what was measured, is said and not taken from the cache.
    label = next((experiment.parent / "labels").iterdir())
    label.write_text("0 0.5 0.5 0.1 0.1\n")
    changed_report, _ = collected(store)
    assert any("changed" in omission.reason for omission in changed_report.omissions)
    assert changed_report.changes == ()


@pytest.mark.slow
def test_the_same_report_of_runs_compares_nothing_again(mpnet: Mpnet, experiment: Path, cache: Path) -> None:
    run = document_of(mpnet("run", experiment, "--json"))
    folder = experiment.parent / run["folder"]
    report, _ = collected(folder)
    entries = set((cache / "prepared").iterdir())
    second_report, _ = collected(folder)
    assert timeless(second_report) == timeless(report)
    busy = {entry for entry in (cache / "prepared").iterdir() if entry not in entries}
    assert len(busy) <= 1  # times, where the machine was busy before
    detections = folder / "detections.json"
    text = detections.read_text()
    detections.write_text("[]")
    uncached_report, _ = collected(folder)
    assert timeless(uncached_report) != timeless(report)
    detections.write_text(text)
    assert timeless(collected(folder)[0]) == timeless(report)
