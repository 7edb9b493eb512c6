# SPDX-License-Identifier: MIT
"""Remedies of layers: what their channels show, without what is on already and what does not exist for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpnet.diagnose.analysis_document import LayerRow
from mpnet.diagnose.analyze import analyze_experiment
from mpnet.diagnose.remedies import UNEVEN
from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.documents.experiment import parse_experiment, read_experiment
from mpnet.quantization.measure import spread_of_channels
from mpnet.trial.inputs import spread
from tests.networks import DEPTHWISE_CFG, write_experiment


def rows(folder: Path, *quantization: str, default: str = "int8") -> dict[int, LayerRow]:
    overrides = (f"precision={{default: {default}}}", *quantization)
    report = analyze_experiment(read_experiment(folder / "experiment.yaml", overrides), images=2, keep_macs_percent=0)
    return {row.layer: row for row in report.document().layers}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a network with a depthwise layer on images."""
    folder = tmp_path_factory.mktemp("remedies")
    write_experiment(folder, DEPTHWISE_CFG.decode().replace("classes=2", "classes=3").replace("filters=14", "filters=16"))
    return folder


def test_the_spread_is_the_largest_range_over_the_median_of_those_alive() -> None:
    assert spread_of_channels(np.array([1.0, 2.0, 0.0, 8.0])) == 4.0
    assert spread_of_channels(np.zeros(3)) == 1.0


def test_spreads_are_those_of_the_weights_and_the_images(folder: Path) -> None:
    network = read_cfg(folder / "net.cfg")
    row = rows(folder)[0]
    report = analyze_experiment(read_experiment(folder / "experiment.yaml", ("precision={default: int8}",)), images=2)
    weights = report.bench.prepared.folded[0].weights
    assert row.weight_channel_spread == spread_of_channels(np.abs(weights).max(axis=(1, 2, 3)).astype(np.float64))
    images = np.concatenate([report.bench.inputs.take([position]).x for position in spread(len(report.bench.inputs), 2)])
    assert network.layers[0].inputs == (-1,)
    assert row.input_channel_spread == spread_of_channels(np.abs(images).max(axis=(0, 1, 2)).astype(np.float64))


def test_what_is_on_is_no_remedy(folder: Path) -> None:
    def all_remedies(*quantization: str) -> set[str]:
        return {remedy for row in rows(folder, *quantization).values() for remedy in row.remedies}

    assert "bias_correction: true" in all_remedies()
    assert "bias_correction: true" not in all_remedies("quantization={bias_correction: true}")
    assert "weights: per_channel" not in all_remedies()
    assert not {remedy for remedy in all_remedies("quantization={equalisation: activations}") if "equalisation" in remedy}


def test_uneven_channels_before_a_depthwise_layer_are_equalised_by_activations(folder: Path) -> None:
    report = analyze_experiment(read_experiment(folder / "experiment.yaml", ("precision={default: int8}",)), images=2)
    layers = {layer.layer: layer for layer in report.analysis.layers}
    uneven = {index: report.remedies.find(replace(layer, input_spread=UNEVEN)) for index, layer in layers.items()}
    assert {index for index, found in uneven.items() if "equalisation: activations" in found} == {2}
    even = report.remedies.find(replace(layers[2], input_spread=UNEVEN / 2))
    assert even == tuple(remedy for remedy in uneven[2] if remedy != "equalisation: activations")


@pytest.mark.slow
def test_a_real_network_with_a_range_per_tensor_needs_no_raised_layers(shared_data: Path, tmp_path: Path) -> None:
    aix = shared_data / "aix2022"
    experiment = parse_experiment(
        f"""
name: aix
model: {{cfg: {aix}/yolov3-tiny-aix2022.cfg, weights: {aix}/yolov3-tiny-aix2022.weights, names: {aix}/yolohw.names}}
data: {{format: coco, images: {aix}/images, annotations: {aix}/instances_dev.json, limit: 4}}
precision: {{default: int8}}
quantization: {{activations: {{mode: power_of_two}}, weights: {{granularity: per_tensor, method: power_of_two}}}}
output: {tmp_path}
""",
        base=tmp_path,
    )
    document = analyze_experiment(experiment, images=2).document()
    scheme = document.default_quantization
    assert scheme is not None
    assert scheme.gains_more
    assert scheme.agreement > document.keep.raised.agreement > document.keep.given.agreement
    assert "weights: per_channel" in next(row for row in document.layers if row.name == "conv-1").remedies


def test_remedies_stand_beside_layers_with_more_than_an_even_share_of_the_noise(folder: Path) -> None:
    of_layers = rows(folder).values()
    assert {row.layer for row in of_layers if row.remedies} == {
        row.layer for row in of_layers if row.noise_percent > 100 / len(of_layers)
    }


def test_layers_without_codes_have_their_precision_alone_as_remedy(folder: Path) -> None:
    assert {row.remedies for row in rows(folder, default="fp16").values()} <= {(), ("fp32",)}
