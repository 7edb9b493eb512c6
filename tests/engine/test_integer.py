# SPDX-License-Identifier: MIT
"""Networks in whole numbers alone: which operations layers become, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpnet.config.identity import digest_of
from mpnet.engine.assign import assign
from mpnet.engine.calibrate import range_requests
from mpnet.engine.cost import plan_cost
from mpnet.engine.integer import codes_owner
from mpnet.engine.options import EngineOptions, resolve_options
from mpnet.engine.plan import Plan, build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import ConfigError, EngineError, MpnetError, PrecisionError
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.implementation import Kernels
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.quantization import ActivationOptions, NarrowOptions, QuantizationOptions
from mpnet.model.weights import random_weights
from tests.kernels.oracle import oracle
from tests.networks import tiny_cfg

INTEGER_ONLY = QuantizationOptions(ActivationOptions(ranges="calibrated"), integer_only=True)
NET = "[net]\nwidth=12\nheight=10\nchannels=3\n"
# Every activation, a depthwise layer, a sum, poolings that are fused and that are not, a concatenation, an upsampling.
EVERYTHING = (
    NET
    + "[convolutional]\nfilters=8\nsize=3\npad=1\nactivation=leaky\n[maxpool]\nsize=2\nstride=2\n"
    + "[convolutional]\nfilters=8\nsize=3\npad=1\ngroups=8\nactivation=relu6\n"
    + "[convolutional]\nfilters=8\nsize=1\nactivation=relu\n"
    + "[shortcut]\nfrom=-3\nactivation=leaky\n[maxpool]\nsize=3\nstride=1\n[dropout]\n[upsample]\nstride=2\n"
    + "[route]\nlayers=-1,0\n[convolutional]\nfilters=14\nsize=1\nactivation=linear\n"
    + "[yolo]\nmask=0,1\nnum=2\nclasses=2\nanchors=2,3, 4,5\n"
)


def options_of(
    network: NetworkSpec, quantization: QuantizationOptions = INTEGER_ONLY, **ranges: tuple[float, float]
) -> EngineOptions:
    """Return options with a range for each tensor, and others for layers named `layer_N`."""
    ranges_of = {index: (-1.0 - index % 3, 2.0 + index % 5) for index in range(len(network.layers))}
    ranges_of |= {-1: (0.0, 1.0)} | {int(name[6:]): value for name, value in ranges.items()}
    return resolve_options(network, quantization, ranges=ranges_of)


def plan_of(text: str, precision: str = "int8", layers: Any = None, **ranges: tuple[float, float]) -> Plan:
    network = parse_cfg(text, "net.cfg")
    return build_plan(network, assign(network, precision, layers), options_of(network, **ranges))


def heads(plan: Plan, table: Kernels, fuse: bool = True, threads: int = 1) -> list[bytes]:
    network = plan.network
    batch = np.random.default_rng(2).random((3, *network.in_shape), np.float32)
    prepared = Prepared(network, random_weights(network, 1), table)
    return [head.tobytes() for head in Session(prepared, plan, threads, fuse).forward(batch)]


def test_nothing_between_the_image_and_the_heads_is_real() -> None:
    for precision in ("int8", "int16"):
        plan = plan_of(EVERYTHING, precision)
        assert [
            step.operation.name
            for step in plan.steps
            if not (step.input_precision.carries_scale and step.output_precision.carries_scale)
        ] == ["IntegerQuantize", "Dequantize", "Yolo"]
        assert {str(step.output_precision) for step in plan.steps[:-2]} == {precision}


def test_layers_of_other_bits_rescale_their_input_and_a_concatenation_its_parts() -> None:
    names = [step.operation.name for step in plan_of(EVERYTHING, "int16", {"9": "int8"}).steps]
    assert names[-7:] == [*["IntegerRescale"] * 2, "IntegerConcat", "IntegerRescale", "IntegerConvolve", "Dequantize", "Yolo"]
    assert "IntegerRescale" not in names[:-7]


def test_int8_gives_int16_to_what_reads_int16_past_layers_that_follow_it() -> None:
    def read_precisions(layers: dict[str, str]) -> dict[int, str]:
        steps = plan_of(EVERYTHING, "int8", layers).steps
        return {
            step.layer: f"{step.input_precision} {step.output_precision}"
            for step in steps
            if step.operation.name == "IntegerConvolve"
        }

    assert read_precisions({}) == dict.fromkeys((0, 2, 3, 9), "int8 int8")
    # Through a pooling; as the first to read it, beside others in int8.
    assert read_precisions({"2": "int16"}) == {0: "int8 int16", 2: "int16 int16", 3: "int8 int8", 9: "int8 int8"}
    # Through a sum, a concatenation and what lies between.
    assert read_precisions({"9": "int16"}) == {0: "int8 int16", 2: "int8 int8", 3: "int8 int16", 9: "int16 int16"}
    # To layers without weights that are of int16 themselves, and not beyond those of int8.
    assert read_precisions({"4": "int16"}) == {0: "int8 int16", 2: "int8 int8", 3: "int8 int16", 9: "int8 int8"}
    assert read_precisions({"9": "int16", "8": "int8"}) == {0: "int8 int8", 2: "int8 int8", 3: "int8 int8", 9: "int16 int16"}


def test_what_int16_reads_of_int8_has_more_than_eight_bits() -> None:
    network = parse_cfg(EVERYTHING, "net.cfg")
    prepared = Prepared(network, random_weights(network, 1), kernels())
    tensors: dict[int, Any] = {}
    session = Session(prepared, plan_of(EVERYTHING, "int8", {"2": "int16"}))
    batch = np.random.default_rng(2).random((1, *network.in_shape), np.float32)
    session.observe(
        batch, lambda _, step, inputs, output: tensors.setdefault(step.layer, output.host().copy()) if step.layer == 1 else None
    )
    assert tensors[1].dtype == np.int16
    assert len(np.unique(tensors[1])) > 200


@pytest.mark.parametrize("layers", [{}, {"9": "int16"}, {"0": "int16", "3": "int16"}, {"8": "int16"}, {"2": "int16"}], ids=str)
@pytest.mark.parametrize("precision", ["int8", "int16", "int4", "int16w4"])
def test_fused_and_by_the_oracle_the_codes_are_the_same(precision: str, layers: dict[str, str]) -> None:
    network = parse_cfg(EVERYTHING, "net.cfg")
    quantization = QuantizationOptions(narrow=NarrowOptions(rounding="nearest", bias_correction=False))
    plan = build_plan(network, assign(network, precision, layers), options_of(network, INTEGER_ONLY.overlaid(quantization)))
    expected = heads(plan, oracle(), fuse=False)
    for fuse, threads in ((True, 1), (True, 3), (False, 1)):
        assert heads(plan, kernels(), fuse, threads) == expected


def test_what_all_have_costs_what_it_did() -> None:
    network = parse_cfg(EVERYTHING, "net.cfg")
    plain = build_plan(
        network, assign(network, "int16"), options_of(network, INTEGER_ONLY.overlaid(QuantizationOptions(integer_only=False)))
    )
    integer_cost, plain_cost = plan_cost(plan_of(EVERYTHING, "int16")), plan_cost(plain)
    for name in ("macs", "bit_operations", "weight_bytes"):
        assert integer_cost[name] == plain_cost[name]


def test_a_network_of_fp32_is_what_it_was() -> None:
    network = parse_cfg(tiny_cfg(), "net.cfg")
    plan = build_plan(network, assign(network, "fp32"), resolve_options(network, INTEGER_ONLY))
    assert plan.text() == build_plan(network, assign(network, "fp32")).text()


def test_every_tensor_with_codes_of_its_own_is_calibrated() -> None:
    network = parse_cfg(EVERYTHING, "net.cfg")
    assert list(range_requests(network, resolve_options(network, INTEGER_ONLY))) == [-1, 0, 2, 3, 4, 8, 9]
    assert [codes_owner(network, index) for index in (1, 5, 6, 7)] == [0, 4, 4, 4]


def test_what_is_not_asked_for_is_in_no_identity() -> None:
    """Identities of trials from before there were whole numbers stay."""
    plain = QuantizationOptions(ActivationOptions(ranges="calibrated")).plain_values()
    assert plain == {"activations": {"ranges": "calibrated"}}
    network = parse_cfg(NET + "[convolutional]\nfilters=2\n", "net.cfg")
    complete = resolve_options(network).complete[0].plain_values()
    assert "integer_only" not in complete
    assert digest_of(resolve_options(network, INTEGER_ONLY).complete[0].plain_values()) != digest_of(complete)


@pytest.mark.parametrize(
    ("change", "layers", "message"),
    [
        ({}, {"9": "fp16"}, r"layer 9 \(conv-4/yolo-1\): fp16 is no precision of whole numbers; .* set it to int8 or int16"),
        ({}, {"0": "fp32"}, r"layer 0 \(conv-1\): fp32 is no precision of whole numbers"),
        ({}, {"8": "fp16"}, r"layer 8 \(route-1\): fp16 is no precision of whole numbers"),
        (
            {"activation=relu6": "activation=mish"},
            {},
            r"layer 2 \(conv-2\): activation mish has no form in whole numbers; .*leaky",
        ),
        ({"[dropout]": "[softmax]"}, {}, r"layer 6 \(softmax-1\): \[softmax\]"),
    ],
    ids=str,
)
def test_what_has_no_form_in_whole_numbers_is_refused_by_layer(
    change: dict[str, str], layers: dict[str, str], message: str
) -> None:
    text = EVERYTHING
    for old, new in change.items():
        text = text.replace(old, new)
    with pytest.raises(PrecisionError, match=f"^[^\n]*{message}[^\n]*$"):
        plan_of(text, "int8", layers)


@pytest.mark.parametrize(
    ("activations", "layers", "message"),
    [
        (ActivationOptions(ranges="dynamic"), (), "takes no range that is measured on the image; set .* to calibrated"),
        (ActivationOptions(mode="MIN_FIRST"), (), "no codes of MIN_FIRST; set .* to affine, symmetric or power_of_two"),
        (
            ActivationOptions(),
            [("heads", QuantizationOptions(integer_only=False))],
            r"layer 9 \(conv-4/yolo-1\) leaves out quantization.integer_only, which all layers have or none",
        ),
    ],
)
def test_options_that_do_not_go_with_whole_numbers_are_refused(
    activations: ActivationOptions, layers: Any, message: str
) -> None:
    network = parse_cfg(EVERYTHING, "net.cfg")
    with pytest.raises(MpnetError, match=f"^[^\n]*{message}[^\n]*$") as excinfo:
        resolve_options(network, INTEGER_ONLY.overlaid(QuantizationOptions(activations)), layers)
    assert isinstance(excinfo.value, ConfigError | PrecisionError)


@pytest.mark.parametrize(
    ("precision", "ranges", "message"),
    [
        ("int8", {"layer_0": (0.0, float("inf"))}, r"layer 0 \(conv-1\): activation range .* is not finite"),
        (
            "int8",
            {"layer_9": (-1e-9, 1e-9)},
            r"layer 9 \(conv-4/yolo-1\) cannot run in whole numbers: channel \d+: .* 128 or more cannot be scaled",
        ),
        (
            "int16",
            {"layer_9": (-1e-7, 1e-7)},
            r"layer 9 \(conv-4/yolo-1\) cannot run in whole numbers: channel \d+: .* 128 or more",
        ),
        ("int8", {"layer_4": (-1e-9, 1e-9)}, r"layer 4 \(shortcut-1\): the range of its sum"),
        ("int16", {"layer_8": (-1e-7, 1e-7)}, r"layer 8 \(route-1\): the range of its input is .* times as wide"),
    ],
)
def test_ranges_that_cannot_be_scaled_are_refused_by_layer(precision: str, ranges: Any, message: str) -> None:
    with pytest.raises(MpnetError, match=f"^[^\n]*{message}[^\n]*$"):
        heads(plan_of(EVERYTHING, precision, **ranges), kernels())


def test_an_empty_range_is_no_error() -> None:
    assert heads(plan_of(EVERYTHING, "int8", layer_2=(0.0, 0.0)), kernels())


def test_sums_that_could_leave_their_bits_are_refused_by_layer() -> None:
    """Products of the largest weights, whose sums are shifted to the left before they are multiplied."""
    text = "[net]\nwidth=4\nheight=4\nchannels=3\n[convolutional]\nfilters=16000\nsize=1\nactivation=linear\n"
    network = parse_cfg(text + "[convolutional]\nfilters=1\nsize=2\nactivation=linear\n", "net.cfg")
    weights = random_weights(network, 1)
    weights.layers[1].weights[...] = 1.0
    plan = build_plan(network, assign(network, "int8"), options_of(network, layer_1=(-0.0013, 0.0013)))
    with pytest.raises(
        EngineError, match=r"layer 1 \(conv-2\) cannot run in whole numbers: channel 0: its sums can reach [\d,]+, beyond"
    ):
        Session(Prepared(network, weights, kernels()), plan).forward(np.zeros((1, 4, 4, 3), np.float32))
