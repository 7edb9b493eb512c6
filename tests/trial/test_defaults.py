# SPDX-License-Identifier: MIT
"""Defaults that follow from the network, its labels and its target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mpnet.config.experiment import ConstraintSection, DataSection, Experiment, ModelSection, SweepSection
from mpnet.errors import ConfigError
from mpnet.formats.cfg.read import parse_cfg
from mpnet.formats.documents.experiment import parse_experiment
from mpnet.formats.documents.experiment_writer import format_flow, quantization_keys
from mpnet.importing import Imported
from mpnet.model.quantization import BY_ACTIVATIONS
from mpnet.model.task import CLASSIFICATION, DETECTION
from mpnet.trial.defaults import (
    declares_quantization,
    default_objectives,
    default_precisions,
    default_quantization,
    has_depthwise_layers,
    supported_precisions,
)
from mpnet.trial.import_template import import_template
from mpnet.trial.task import for_task
from tests.networks import DEPTHWISE_CFG, tiny_cfg

DEPTHWISE = parse_cfg(DEPTHWISE_CFG.decode(), "depthwise.cfg")
PLAIN = parse_cfg(tiny_cfg(), "plain.cfg")


def test_networks_with_depthwise_layers_are_equalised_corrected_and_searched_from_fp16() -> None:
    assert (has_depthwise_layers(DEPTHWISE), has_depthwise_layers(PLAIN)) == (True, False)
    options = default_quantization(DEPTHWISE)
    assert (options.equalisation, options.bias_correction) == (BY_ACTIVATIONS, True)
    assert default_precisions(DEPTHWISE) == ("fp16", "int8")
    plain = default_quantization(PLAIN)
    assert (plain.equalisation, plain.bias_correction) == (None, None)
    assert default_precisions(PLAIN) == ("fp32", "fp16", "int8")


def test_a_target_is_offered_what_it_runs() -> None:
    assert supported_precisions(PLAIN, "onnxruntime") == ("fp32", "int8")
    assert default_precisions(DEPTHWISE, "onnxruntime") == ("fp32", "int8")
    assert default_precisions(DEPTHWISE, "openvino") == ("fp16", "int8")
    assert default_quantization(PLAIN, "onnxruntime").activations.ranges == "calibrated"


def test_what_is_written_reads_as_the_options() -> None:
    for engine in ("", "onnxruntime", "ncnn"):
        options = default_quantization(DEPTHWISE, engine)
        text = f"name: x\nmodel: {{cfg: a, weights: b}}\nquantization: {format_flow(quantization_keys(options))}\n"
        assert parse_experiment(text, base=Path()).quantization.options == options


def test_objectives_are_agreement_and_cost_and_accuracy_where_there_are_labels() -> None:
    assert default_objectives(DETECTION, labelled=False) == ("agreement_AP", "bit_operations")
    assert default_objectives(DETECTION, labelled=True) == ("agreement_AP", "AP", "bit_operations")
    assert default_objectives(CLASSIFICATION, labelled=True) == ("agreement_top1", "top1", "bit_operations")


def test_accuracy_is_no_objective_without_labels() -> None:
    sweep = SweepSection("auto")
    unlabelled = DataSection(unlabelled=Path("frames"))
    experiment = Experiment("x", ModelSection(Path("a"), Path("b")), unlabelled, sweep=sweep)

    def objectives(*names: str, data: DataSection = unlabelled) -> tuple[str, ...]:
        resolved = for_task(replace(experiment, data=data, sweep=replace(sweep, objectives=names)), PLAIN).sweep
        assert resolved is not None
        return resolved.objectives

    assert objectives() == ("agreement_AP", "bit_operations")
    assert objectives(data=DataSection("yolo")) == ("AP", "bit_operations")
    assert objectives("agreement_AP", "AP", "bit_operations") == ("agreement_AP", "bit_operations")
    with pytest.raises(ConfigError, match="AP cannot be measured of images without labels; use agreement_AP"):
        objectives("AP", "bit_operations")


def test_accuracy_is_no_limit_without_labels() -> None:
    sweep = SweepSection("auto", objectives=("agreement_AP", "bit_operations"))
    experiment = Experiment("x", ModelSection(Path("a"), Path("b")), DataSection(unlabelled=Path("frames")), sweep=sweep)
    for limits in (
        ConstraintSection(ap_drop=1.0),
        ConstraintSection(ap_drop_relative=0.1),
        ConstraintSection(drops={"AP50_drop": 1.0}),
    ):
        limited = replace(experiment, sweep=replace(sweep, constraints=limits))
        with pytest.raises(ConfigError, match="cannot be measured of images without labels; limit agreement_AP_drop"):
            for_task(limited, PLAIN)
        assert for_task(replace(limited, data=DataSection("yolo")), PLAIN).sweep == limited.sweep
    kept = ConstraintSection(drops={"agreement_AP_drop": 1.0}, at_most={"weight_bytes": 1e6})
    assert for_task(replace(experiment, sweep=replace(sweep, constraints=kept)), PLAIN).sweep is not None


def test_what_a_quantised_models_cfg_says_stays() -> None:
    assert not declares_quantization(PLAIN)
    declared = tiny_cfg().replace("channels=3\n", "channels=3\nquantize_weights=per_tensor\n")
    assert declares_quantization(parse_cfg(declared, "quantised.cfg"))


def test_the_file_of_an_import_has_the_defaults() -> None:
    experiment = parse_experiment(import_template("net", Imported("", b"", (), DEPTHWISE, (), (), ())), base=Path())
    assert experiment.sweep is not None
    assert experiment.sweep.precisions == ("fp16", "int8")
    assert experiment.sweep.objectives == ("agreement_AP", "AP", "bit_operations")
    assert experiment.quantization.options == default_quantization(DEPTHWISE)
