# SPDX-License-Identifier: MIT
"""What every task's kit must give: measures under the names of its task, and files that are read as they were written."""

from __future__ import annotations

import math
from pathlib import Path

from mpnet.config.measures import names_of
from mpnet.trial.inference import run_plans
from mpnet.trial.workbench import Workbench


def test_agreement_with_itself_is_complete(bench: Workbench) -> None:
    plans = [bench.plan(bench.uniform(name)) for name in ("fp32", "int8")]
    baseline, lowered = run_plans(bench, plans)
    self_agreement = bench.kit.agreement(baseline.predictions, baseline.predictions, bench.dataset, "0" * 16, [math.inf, 30.0])
    assert self_agreement.baseline == "0" * 16
    assert self_agreement.head_sqnr_db == (None, 30.0)
    assert set(self_agreement.values.values()) == {100.0}
    lowered_agreement = bench.kit.agreement(
        baseline.predictions, lowered.predictions, bench.dataset, "0" * 16, lowered.head_sqnr_db
    )
    assert {f"agreement_{name}" for name in lowered_agreement.values} == set(names_of("agreement", task=bench.kit.task))
    assert all(value is not None and math.isfinite(value) for value in lowered_agreement.head_sqnr_db)


def test_predictions_are_read_as_they_were_written(bench: Workbench, tmp_path: Path) -> None:
    [outcome] = run_plans(bench, [bench.plan(bench.assign())])
    path = tmp_path / bench.kit.task.file
    content = bench.kit.to_json(outcome.predictions, bench.dataset)
    path.write_bytes(content)
    assert bench.kit.to_json(bench.kit.read(path, bench.dataset), bench.dataset) == content


def test_classes_and_metrics_have_the_tasks_measures(bench: Workbench) -> None:
    [outcome] = run_plans(bench, [bench.plan(bench.assign())])
    metrics, classes = bench.kit.measure(outcome.predictions, bench.dataset)
    assert set(metrics) == set(names_of("accuracy", task=bench.kit.task))
    assert [row.name for row in classes] == list(bench.dataset.names)
    assert all(bench.kit.task.quality in row.values for row in classes)
    assert sum(row.truths for row in classes) == len(bench.dataset.box)
