# SPDX-License-Identifier: MIT
"""Plans: every conversion is a step, and nothing runs that does not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpnet.engine.assign import assign
from mpnet.engine.options import EngineOptions, LayerQuantization, resolve_options
from mpnet.engine.plan import Plan, build_plan, verify_plan
from mpnet.errors import EngineError, PrecisionError
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import FP16, FP32, INT8
from mpnet.model.quantization import ActivationOptions, QuantizationOptions, WeightOptions

MIXED = """\
  0 Cast for conv-1: s0 -> s1, 20x12x3, fp32 -> fp16
  1 Convolve (fp16) for conv-1: s1 -> s2, 10x6x16, fp16
  2 Quantize (affine, dynamic) for conv-2: s2 -> s3, 10x6x16, fp16 -> int8
  3 Convolve (int8) for conv-2: s3 -> s4, 10x6x16, int8 -> fp32
  4 Quantize (affine, dynamic) for conv-3: s4 -> s5, 10x6x16, fp32 -> int8
  5 Convolve (int8) for conv-3: s5 -> s6, 10x6x16, int8 -> fp32
  6 Cast for shortcut-1: s2 -> s7, 10x6x16, fp16 -> fp32
  7 Add (leaky) for shortcut-1: s6 s7 -> s8, 10x6x16, fp32
  8 MaxPool (2x2/2) for maxpool-1: s8 -> s9, 5x3x16, fp32
  9 Quantize (affine, dynamic) for maxpool-2: s9 -> s10, 5x3x16, fp32 -> int8
 10 MaxPool (3x3/1) for maxpool-2: s10 -> s11, 5x3x16, int8
 11 Dequantize for conv-4/yolo-1: s11 -> s12, 5x3x16, int8 -> fp32
 12 Convolve (fp32) for conv-4/yolo-1: s12 -> s13, 5x3x14, fp32
 13 Yolo for yolo-1: s13 -> s13, 5x3x14, fp32
 14 Slice (8:16) for route-1: s11 -> s14, 5x3x8, int8
 15 Convolve (int8) for conv-5: s14 -> s15, 5x3x24, int8 -> fp32
 16 Upsample (x2) for upsample-1: s15 -> s16, 10x6x24, fp32
 17 Concat for route-2: s16 s8 -> s17, 10x6x40, fp32
 18 Quantize (affine, dynamic) for route-2: s17 -> s18, 10x6x40, fp32 -> int8
 19 Convolve (int8) for conv-6/yolo-2: s18 -> s19, 10x6x14, int8 -> fp32
 20 Yolo for yolo-2: s19 -> s19, 10x6x14, fp32"""


def mixed(network: NetworkSpec, options: EngineOptions | None = None) -> Plan:
    precisions = assign(network, "int8", {0: "fp16", "*/yolo-1": "fp32", "maxpool-2": "int8", "route-2": "int8"})
    return build_plan(network, precisions, options or resolve_options(network))


def test_every_conversion_is_a_step(network: NetworkSpec) -> None:
    plan = mixed(network)
    assert plan.text() == MIXED
    assert [plan.slots[slot].layer for slot in plan.outputs] == [7, 13]
    # The dropout passes the shortcut's slot on.
    assert plan.layer_slots[4] == plan.layer_slots[3] == 8


def test_codes_become_other_codes_by_way_of_reals(network: NetworkSpec) -> None:
    plan = build_plan(network, assign(network, "fp32", {"maxpool-2": "int8", 7: "int16"}))
    assert [f"{step.input_precision} -> {step.output_precision}" for step in plan.conversions[7]] == [
        "int8 -> fp32",
        "fp32 -> int16",
    ]


def test_consumers_share_a_conversion(network: NetworkSpec) -> None:
    plan = build_plan(network, assign(network, "int8"), resolve_options(network))
    quantized = [step.inputs[0] for step in plan.steps if step.operation.name == "Quantize"]
    assert len(quantized) == len(set(quantized)) == 6
    # With schemes of their own they cannot share: conv-4 and conv-5 both read maxpool-2, one through a slice.
    options = resolve_options(network, layers=[("conv-4", QuantizationOptions(ActivationOptions(mode="symmetric")))])
    unshared = build_plan(network, assign(network, "int8"), options)
    assert [s.operation.detail for s in unshared.steps if s.operation.name == "Quantize"].count("symmetric, dynamic") == 1


def test_a_result_without_heads_leaves_as_fp32() -> None:
    from mpnet.formats.cfg.read import parse_cfg

    network = parse_cfg("[net]\nwidth=4\nheight=4\n[convolutional]\nfilters=2\nfp16=1\n[avgpool]\n")
    plan = build_plan(network, assign(network))
    assert plan.text().splitlines()[-1] == "  3 Cast for avgpool-1: s3 -> s4, 1x1x2, fp16 -> fp32"


def test_slots_live_from_their_writer_to_their_last_reader(network: NetworkSpec) -> None:
    slots = mixed(network).slots
    assert [(slots[i].first, slots[i].last) for i in (0, 2, 8, 11, 13, 19)] == [
        (-1, 0),
        (1, 6),
        (7, 17),
        (10, 14),
        (12, 21),
        (19, 21),
    ]


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (3, {"input_precision": FP32}, "step 3 (Convolve) of layer 1 (conv-2): declares fp32 but slot 3 holds int8"),
        (3, {"output_precision": INT8}, "step 3 (Convolve) of layer 1 (conv-2): declares to give int8 but slot 4 holds fp32"),
        (3, {"inputs": (17,)}, "step 3 (Convolve) of layer 1 (conv-2): reads slot 17 before it is written"),
        (3, {"inputs": (2,), "input_precision": FP16}, "step 3 (Convolve) of layer 1 (conv-2): cannot turn fp16 into fp32"),
        (8, {"output": 6}, "step 8 (MaxPool) of layer 5 (maxpool-1): writes slot 6 a second time"),
        (8, {"inputs": (4,)}, None),
        (8, {"inputs": (9,)}, "step 8 (MaxPool) of layer 5 (maxpool-1): reads slot 9 before it is written"),
        (
            16,
            {"inputs": (9,)},
            "step 16 (Upsample) of layer 11 (upsample-1): gives the shape (6, 10, 24) where (6, 10, 16) follows from its "
            "inputs",
        ),
        (
            17,
            {"inputs": (16, 15)},
            "step 17 (Concat) of layer 12 (route-2): gives the shape (6, 10, 40) where (6, 10, 48) follows from its inputs",
        ),
    ],
)
def test_verification_names_the_step_that_does_not_fit(
    network: NetworkSpec, number: int, change: dict[str, object], message: str | None
) -> None:
    plan = mixed(network)
    steps = list(plan.steps)
    steps[number] = steps[number]._replace(**change)
    damaged = replace(plan, steps=tuple(steps))
    if message is None:
        verify_plan(damaged)  # another tensor of the same shape and precision: sound, if not the same network
        return
    with pytest.raises(EngineError) as excinfo:
        verify_plan(damaged)
    assert str(excinfo.value) == message


def test_an_output_must_be_fp32(network: NetworkSpec) -> None:
    plan = mixed(network)
    with pytest.raises(EngineError, match=r"^output slot 2 is not written as fp32$"):
        verify_plan(replace(plan, outputs=(2,)))


CALIBRATED = QuantizationOptions(ActivationOptions(ranges="calibrated"))


def test_calibration_that_is_missing_is_named(network: NetworkSpec) -> None:
    options = resolve_options(network, layers=[("conv-5", CALIBRATED)])
    with pytest.raises(PrecisionError) as excinfo:
        build_plan(network, assign(network, "int8"), options)
    assert str(excinfo.value) == (
        "layer 10 (conv-5) asks for calibrated activations, but there is no range for the result of layer 9 (route-1); "
        "calibrate first or use dynamic"
    )


def test_options_lie_over_each_other() -> None:
    from mpnet.formats.cfg.read import parse_cfg

    network = parse_cfg(
        "[net]\nwidth=4\nheight=4\nquantize_mode=symmetric\nquantize_weights=per_tensor\n"
        "[convolutional]\n[convolutional]\nquantize_weights=per_channel\nquantize_weight_method=mse\n[convolutional]\n"
    )
    options = resolve_options(
        network,
        QuantizationOptions(weights=WeightOptions(rounding="truncate")),
        [("last", QuantizationOptions(ActivationOptions(mode="affine"), bias_correction=True))],
    )
    layer_options: list[LayerQuantization] = [options.of(index) for index in range(3)]
    assert [
        (q.activations.mode, q.weights.granularity, q.weights.method, q.weights.rounding, q.corrected) for q in layer_options
    ] == [
        ("symmetric", "per_tensor", "min_max", "truncate", False),
        ("symmetric", "per_channel", "mse", "truncate", False),
        ("affine", "per_tensor", "min_max", "truncate", True),
    ]
