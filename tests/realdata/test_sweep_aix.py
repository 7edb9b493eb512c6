# SPDX-License-Identifier: MIT
"""Sweeps of a real network on real images: the bits and figures of direct runs, and the work that theory predicts."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path
from typing import Iterator

import numpy as np
import pytest

from mpnet.config.measures import AGREEMENT, names_of
from mpnet.engine.assign import assign_key
from mpnet.formats.documents.experiment import read_experiment
from mpnet.model.task import DETECTION
from mpnet.sweep.evaluate.evaluator import Evaluator
from mpnet.sweep.evaluate.work_chunks import WorkChunk
from mpnet.sweep.problem.space import build_space
from mpnet.sweep.setup import make_context, set_up
from mpnet.trial.detection import DETECTION_KIT
from mpnet.trial.experiment import open_workbench
from mpnet.trial.inference import Outcome, run_plans
from mpnet.trial.measure import measure_detections
from mpnet.trial.workbench import Workbench

Prepared = tuple[Workbench, Evaluator]


@pytest.fixture(scope="module")
def prepared(shared_data: Path, repository: Path) -> Iterator[Prepared]:
    data = shared_data / "aix2022"
    experiment = read_experiment(
        repository / "experiments" / "aix-exhaustive.yaml",
        [
            f"model.cfg={data / 'yolov3-tiny-aix2022.cfg'}",
            f"model.weights={data / 'yolov3-tiny-aix2022.weights'}",
            f"model.names={data / 'yolohw.names'}",
            f"data.images={data / 'images'}",
            f"data.labels={data / 'labels'}",
            "data.limit=10",
            "runtime.threads=1",
        ],
    )
    assert experiment.sweep is not None
    bench = open_workbench(experiment)
    with ExitStack() as stack:
        space = build_space(bench.network, experiment.sweep.precisions, experiment.sweep.space)
        yield bench, Evaluator(make_context(set_up(bench, experiment.sweep, space), stack, 1, remote=False))


def direct(bench: Workbench, keys: list[str]) -> list[Outcome]:
    """Run the fp32 baseline first, then the configurations, as `mpnet run` runs them."""
    return run_plans(bench, [bench.plan(assign_key(bench.network, key)) for key in ("f" * 11, *keys)])


def test_forty_random_configurations_equal_direct_runs(prepared: Prepared) -> None:
    bench, evaluator = prepared
    rng = random.Random(11)
    keys = sorted({"".join(rng.choice("fhq") for _ in range(11)) for _ in range(40)})
    unit = WorkChunk(0, tuple(keys))
    trials = evaluator.evaluate(unit).trials
    outcomes = direct(bench, keys)
    for key, trial, outcome in zip(keys, trials, outcomes[1:], strict=True):
        predictions = evaluator.predictions(0, key)
        for name in ("image_index", "category", "score", "box"):
            ours, theirs = getattr(predictions, name), getattr(outcome.predictions, name)
            assert ours.dtype == theirs.dtype
            assert np.array_equal(ours.view(np.uint32), theirs.view(np.uint32)), (key, name)
        metrics, _ = measure_detections(outcome.predictions, bench.dataset)
        agreement = DETECTION_KIT.agreement(outcomes[0].predictions, outcome.predictions, bench.dataset, "", [])
        accuracy = set(names_of("accuracy", stored="trials"))
        for name in {"AP", "AP50", "AP75", "AR100"} | (accuracy & set(trial.values)):
            assert trial.values[name] == metrics[name], (key, name)
        for name in names_of("agreement", stored="trials", task=DETECTION):
            assert trial.values[name] == agreement.values[name.removeprefix(AGREEMENT)], (key, name)


def test_the_counted_work_is_the_theory(prepared: Prepared) -> None:
    bench, evaluator = prepared
    space = build_space(bench.network, ("fp32", "int8"))
    graph = evaluator.passes.graph(0, tuple(space.all_keys()))
    assert graph.macs / bench.network.macs == pytest.approx(128.967, abs=0.001)
