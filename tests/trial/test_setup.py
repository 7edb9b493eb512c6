# SPDX-License-Identifier: MIT
"""A network made ready: assignments, one set of packed weights, options as plain values."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mpnet.detection.conditions import condition
from mpnet.formats.documents.experiment import read_experiment
from mpnet.trial.experiment import open_workbench
from mpnet.trial.identity import identity_of, protocol_of
from mpnet.trial.setup import CalibratedOptions
from mpnet.trial.workbench import Workbench


def test_workers_prepare_the_same_weights(bench: Workbench) -> None:
    worker_options = CalibratedOptions(
        bench.weights, bench.options, bench.calibration.channel_means, bench.calibration.statistics
    )
    prepared = worker_options.prepare(bench.network, bench.kernels)
    for index in bench.weighted_layers:
        assert np.array_equal(prepared.folded[index].weights, bench.prepared.folded[index].weights)
        assert np.array_equal(prepared.folded[index].bias, bench.prepared.folded[index].bias)


def test_views_of_a_workbench_share_its_weights(bench: Workbench) -> None:
    some = bench.of_images([3, 1])
    assert some.prepared is bench.prepared
    assert [record.path for record in some.dataset.images] == [bench.dataset.images[n].path for n in (1, 3)]
    assert [record.path for record in some.inputs.records] == [record.path for record in some.dataset.images]
    fog = bench.under(condition("fog:4", "test"))
    assert fog.prepared is bench.prepared
    assert fog.under(fog.inputs.condition) is fog
    assert protocol_of(fog)["condition"] == "fog:4"


def test_an_identity_depends_on_precisions_and_protocol(bench: Workbench) -> None:
    fp32, int8 = bench.uniform("fp32"), bench.uniform("int8")
    assert identity_of(bench, fp32).id != identity_of(bench, int8).id
    assert identity_of(bench.under(condition("fog:4", "test")), fp32).id != identity_of(bench, fp32).id
    assert identity_of(bench, fp32).id == identity_of(bench.of_images(range(5)), fp32).id


def test_what_differs_between_layers_stands_under_their_index(experiment: Path) -> None:
    uniform = open_workbench(read_experiment(experiment)).quantization
    assert "layers" not in uniform
    override = "quantization={layers: {first: {weights: per_tensor}}}"
    mixed = open_workbench(read_experiment(experiment, [override])).quantization
    assert list(mixed["layers"]) == ["0"]
    assert mixed["layers"]["0"]["weights"]["granularity"] == "per_tensor"
    assert {key: value for key, value in mixed.items() if key != "layers"} == uniform
