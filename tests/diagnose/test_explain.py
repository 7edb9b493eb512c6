# SPDX-License-Identifier: MIT
"""Which layers lose an object: shares add up, equal Shapley's definition, and what is named brings the object back."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpnet.data.dataset import Category, Dataset, ImageRecord
from mpnet.data.detections import Detections
from mpnet.diagnose.explain import Explanation, explain_experiment
from mpnet.diagnose.explanation_document import ExplanationDocument
from mpnet.diagnose.objects import Finds, collect_reference_objects, find, find_lost_objects, select_image
from mpnet.errors import ConfigError
from mpnet.formats.documents.experiment import read_experiment
from mpnet.formats.documents.typed import as_json, from_json
from mpnet.trial.inference import run_plans
from tests.networks import small_cfg, tiny_cfg, write_experiment, write_network


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a network whose int8 detections differ from fp32's in many places, and images."""
    folder = tmp_path_factory.mktemp("explain")
    write_experiment(folder, small_cfg())
    write_network(folder, 2, small_cfg())
    return folder


@pytest.fixture(scope="module")
def twelve(folder: Path) -> Explanation:
    """Return the twelve objects that lose most."""
    return explained(folder, worst=12)


def explained(folder: Path, *overrides: str, **options: Any) -> Explanation:
    overrides = (f"data={{unlabelled: {folder / 'images'}}}", *overrides)
    return explain_experiment(read_experiment(folder / "experiment.yaml", overrides), **options)


@lru_cache
def direct(explanation: Explanation, raised: tuple[int, ...]) -> Finds:
    """Return what the configuration finds with layers raised, run as any configuration, on all images."""
    bench = explanation.bench
    plan = bench.assign({layer: explanation.baseline[layer] for layer in raised})
    (outcome,) = run_plans(bench, [bench.plan(plan)])
    return find(outcome.predictions, collect_reference_objects(bench.dataset, explanation.detections[0]))


@pytest.mark.slow
def test_shares_are_shapleys_of_direct_runs(twelve: Explanation) -> None:
    layers = list(twelve.costs)
    finds = {
        frozenset(raised_layers): direct(twelve, raised_layers)
        for size in range(len(layers) + 1)
        for raised_layers in itertools.combinations(layers, size)
    }
    kinds = set()
    for explained_object in twelve.explained:
        kinds.add(explained_object.object.kind)
        values = {raised: explained_object.object.value(f, explained_object.object.index) for raised, f in finds.items()}
        expected = dict.fromkeys(layers, 0.0)
        for order in itertools.permutations(layers):
            for end, layer in enumerate(order):
                expected[layer] += values[frozenset(order[: end + 1])] - values[frozenset(order[:end])]
        assert math.isclose(sum(share.percent for share in explained_object.shares), 100, abs_tol=1e-9)
        for share in explained_object.shares:
            gain = expected[share.layer] / math.factorial(len(layers))
            assert math.isclose(share.percent * explained_object.loss / 100, gain, abs_tol=1e-12)
            assert share.half_width == 0
    assert {"lost", "doubled"} <= kinds


@pytest.mark.slow
def test_what_is_named_brings_the_object_back_and_nothing_cheaper_does(twelve: Explanation) -> None:
    for explained_object in twelve.explained:
        assert explained_object.way is not None
        finds = direct(twelve, explained_object.way.layers)
        assert explained_object.object.is_back(finds, explained_object.object.index)
        assert explained_object.way.score == finds.score[explained_object.object.index]
        for layer, cost in twelve.costs.items():
            if cost < explained_object.way.bit_operations:
                assert not explained_object.object.is_back(direct(twelve, (layer,)), explained_object.object.index)


def test_drawn_orders_add_up_as_well_and_repeat(tmp_path: Path) -> None:
    write_experiment(tmp_path)
    write_network(tmp_path, 2, tiny_cfg())
    explanation = explained(tmp_path, worst=4, pairs=3)
    assert len(explanation.costs) == 13
    shares = [explained_object.shares for explained_object in explanation.explained]
    assert len(shares) == 4
    assert shares == [explained_object.shares for explained_object in explained(tmp_path, worst=4, pairs=3).explained]
    for of_layers in shares:
        assert math.isclose(sum(share.percent for share in of_layers), 100, abs_tol=1e-6)
        assert any(share.half_width > 0 for share in of_layers)


def test_the_document_reads_back_from_json(twelve: Explanation) -> None:
    document = twelve.document()
    assert len(document.objects) == 12
    assert from_json(ExplanationDocument, as_json(document), "explanation") == document


def dataset_of(boxes: list[tuple[float, float, float, float]]) -> Dataset:
    objects = [(0, 0, box, box[2] * box[3], False) for box in boxes]
    return Dataset.of([ImageRecord(1, "a.png", 100, 100, "0" * 64)], [Category(1, "thing")], objects)


def detections(*scored_boxes: tuple[float, tuple[float, float, float, float]]) -> Detections:
    count = len(scored_boxes)
    return Detections.of(1, [0] * count, [0] * count, [score for score, _ in scored_boxes], [box for _, box in scored_boxes])


def test_kinds_of_loss() -> None:
    dataset = dataset_of([(0, 0, 20, 20), (40, 40, 20, 20), (70, 10, 20, 20), (10, 70, 20, 20)])
    baseline = detections(*((0.9, tuple(box)) for box in dataset.box.tolist()))
    lowered = detections(
        (0.8, (50, 40, 20, 20)),  # moved: IoU 1/3 with the second
        (0.7, (70, 10, 20, 20)),
        (0.6, (72, 10, 20, 20)),  # the third, twice
        (0.9, (10, 70, 20, 20)),
        (0.2, (0, 0, 20, 20)),  # too low: the first is lost
    )
    truths = collect_reference_objects(dataset, baseline)
    lost_objects = find_lost_objects(truths, find(baseline, truths), find(lowered, truths))
    loss_of = {
        lost_object.number: (lost_object.kind, lost_object.at_edge, lost_object.baseline_score, round(lost_object.score, 2))
        for lost_object in lost_objects
    }
    nine = float(np.float32(0.9))
    assert loss_of == {1: ("lost", True, nine, 0.2), 2: ("moved", False, nine, 0.0), 3: ("doubled", False, 0.0, 0.6)}
    assert [lost_object.number for lost_object in lost_objects] == [2, 1, 3]
    assert [round(lost_object.near_score, 2) for lost_object in lost_objects] == [0.8, 0.0, 0.6]
    of_first, indices = select_image(truths, 0, lost_objects)
    assert of_first.image_count == 1
    assert indices == [lost_object.index for lost_object in lost_objects]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("scene-1.png", "write IMAGE:N, such as street.jpg:3"),
        ("nowhere.png:1", "no image of the data set is called so"),
        ("scene-1.png:9999", "scene-1.png has"),
        ("scene-1.png:0", "scene-1.png has"),
    ],
)
def test_objects_that_are_not_there(folder: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match="--object") as excinfo:
        explained(folder, objects=[name])
    assert message in str(excinfo.value)


def test_what_the_baseline_misses_cannot_be_explained(tmp_path: Path) -> None:
    write_experiment(tmp_path, small_cfg())
    write_network(tmp_path, 5, tiny_cfg())  # finds nothing
    with pytest.raises(ConfigError, match="the baseline does not find it either"):
        explain_experiment(read_experiment(tmp_path / "experiment.yaml"), objects=["scene-1.png:1"])


def test_the_baseline_itself_loses_nothing(folder: Path) -> None:
    with pytest.raises(ConfigError, match="has the baseline's precision"):
        explained(folder, "precision.default=fp32")
