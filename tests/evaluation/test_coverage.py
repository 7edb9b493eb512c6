# SPDX-License-Identifier: MIT
"""benchmarks/intervals.py: what it counts, on a small synthetic pool. How often intervals hold is for the benchmark to say."""

from __future__ import annotations

import importlib
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import pytest

from mpnet.evaluation.compare import bootstrap, compare, draw_images
from mpnet.evaluation.metrics import CocoEvaluator


@pytest.fixture
def benchmark(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    return importlib.import_module("intervals")


def test_the_whole_pool_is_the_truth_and_intervals_are_those_of_compare(benchmark: ModuleType) -> None:
    dataset, runs = benchmark.make_synthetic_data(6, 40, 3)
    pool_detections = [detections for _, detections in runs[:2]]
    coverage, repeated = (benchmark.simulate(dataset, pool_detections, 20, 2, 100, 5) for _ in range(2))
    assert asdict(coverage) == asdict(repeated)  # a seed gives one table
    results = [CocoEvaluator(dataset).evaluate(run, sizes=False) for run in pool_detections]
    for name in benchmark.METRICS:
        baseline, candidate = (result.summary[name] for result in results)
        assert [tally[name].truth for tally in coverage.values] == [baseline, candidate]
        assert coverage.differences[0][name].truth == candidate - baseline
    for tally in (*coverage.values[0].values(), *coverage.differences[0].values(), *coverage.agreements[0].values()):
        assert tally.covering + tally.above + tally.below == len(tally.values) == 2


def test_all_images_of_the_pool_once_are_the_pool(benchmark: ModuleType) -> None:
    dataset, runs = benchmark.make_synthetic_data(6, 30, 4)
    image_numbers = range(len(dataset.images))
    positions = benchmark.np.array(image_numbers)
    truths = benchmark.truths_of(dataset, positions)
    weight = draw_images(len(image_numbers), 100, 0)
    pairs = []
    for evaluator, pick in (
        (CocoEvaluator(dataset), lambda run: run),
        (CocoEvaluator(truths), lambda run: benchmark.detections_of(run, positions)),
    ):
        results = [evaluator.evaluate(pick(run), sizes=False) for _, run in runs[:2]]
        pairs.append(compare(results[0], bootstrap(results[0], weight), results[1], bootstrap(results[1], weight)))
    assert pairs[0] == pairs[1]
