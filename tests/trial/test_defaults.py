# SPDX-License-Identifier: MIT
"""Defaults that follow from the network, its labels and its target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mpnet.config.experiment import ConstraintSection, DataSection, Experiment, ModelSection, SpaceSection, SweepSection
from mpnet.config.target_file import TargetFile
from mpnet.errors import ConfigError
from mpnet.formats.cfg.read import parse_cfg
from mpnet.formats.documents.experiment import parse_experiment
from mpnet.formats.documents.experiment_writer import format_flow, quantization_keys
from mpnet.formats.documents.target_file import bundled_target, target_names
from mpnet.importing import Imported
from mpnet.model.quantization import BY_ACTIVATIONS
from mpnet.model.selectors import layer_groups
from mpnet.model.task import CLASSIFICATION, DETECTION
from mpnet.trial.defaults import (
    declares_quantization,
    default_objectives,
    default_precisions,
    default_quantization,
    has_depthwise_layers,
    layers_on_cpu,
    runnable_precisions,
    supported_precisions,
    target_of,
    tied_layers,
)
from mpnet.trial.import_template import import_template
from mpnet.trial.task import for_task
from tests.networks import DEPTHWISE_CFG, small_cfg, tiny_cfg

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
    onnxruntime, openvino = bundled_target("onnxruntime"), bundled_target("openvino")
    assert supported_precisions(PLAIN, onnxruntime) == ("fp32", "int8")
    assert default_precisions(DEPTHWISE, onnxruntime) == ("fp32", "int8")
    assert default_precisions(DEPTHWISE, openvino) == ("fp16", "int8")
    assert default_quantization(PLAIN, onnxruntime).activations.ranges == "calibrated"


def own_target(**keywords: Any) -> TargetFile:
    return TargetFile("a chip", ("int16", "int8"), name="chip", **keywords)


def test_layers_of_a_kind_or_group_have_fewer_precisions_and_those_on_the_cpu_reals() -> None:
    target = own_target(layers=(("convolutional", ("int8",)), ("heads", ("int16",))))
    runnable = runnable_precisions(PLAIN, target)
    assert {index for index, names in runnable.items() if names == ("int16",)} == {*layer_groups(PLAIN)["heads"]}
    assert set(runnable.values()) == {("int8",), ("int16",)}
    assert set(runnable_precisions(PLAIN, own_target(on_cpu=("convolutional",))).values()) == {("fp32",)}
    assert set(runnable_precisions(PLAIN, own_target()).values()) == {("int16", "int8")}
    assert set(layers_on_cpu(PLAIN, own_target(on_cpu=("upsample", "leaky"))).values()) == {"upsample", "leaky"}


def test_layers_that_read_one_tensor_are_tied_where_its_precision_is_its_own() -> None:
    network = parse_cfg(small_cfg(), "small.cfg")
    assert [layer.index for layer in network.convolutions] == [0, 2, 4, 9]
    # Layer 4 reads the pooling 3 of layer 2, and 9 a concatenation of 2 and of what is above 3.
    assert tied_layers(network, own_target()) == []
    assert tied_layers(network, own_target(one_precision=("tensor",))) == []
    moving = ("tensor", "route", "maxpool", "upsample")
    assert tied_layers(network, own_target(one_precision=moving)) == [(4, 9)]
    assert tied_layers(PLAIN, own_target(one_precision=moving)) == [(10, 21), (14, 18)]


def test_what_has_no_form_in_whole_numbers_is_quantised_between_reals() -> None:
    esp = bundled_target("esp-ppq")
    assert default_quantization(PLAIN, esp).integer_only
    swish = parse_cfg(tiny_cfg().replace("activation=leaky", "activation=swish"), "swish.cfg")
    assert default_quantization(swish, esp).integer_only is None
    assert default_quantization(swish, esp).activations.mode == "power_of_two"


def test_a_target_is_the_named_one_else_the_sweeps_else_the_first_backend() -> None:
    experiment = Experiment("x", ModelSection(Path("a"), Path("b")))
    sweep = SweepSection("auto", space=SpaceSection(target="hailo"))
    in_ncnn = replace(experiment, backends=("ncnn", "mpnet"))
    assert target_of(experiment) is None
    assert target_of(in_ncnn) == bundled_target("ncnn")
    assert target_of(replace(in_ncnn, sweep=sweep)) == bundled_target("hailo")
    assert target_of(replace(in_ncnn, sweep=sweep), "tidl") == bundled_target("tidl")
    assert target_of(in_ncnn, "mprun") is None  # mpnet's own arithmetic
    with pytest.raises(ConfigError, match="target 'hailoo' is unknown; did you mean 'hailo'"):
        target_of(experiment, "hailoo")


def test_what_is_written_reads_as_the_options() -> None:
    for target in (None, *map(bundled_target, target_names())):
        options = default_quantization(DEPTHWISE, target)
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
