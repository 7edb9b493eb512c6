# SPDX-License-Identifier: MIT
"""Who decides a layer's precision, and what cannot be."""

from __future__ import annotations

import pytest

from mpnet.engine.assign import assign, assign_key
from mpnet.errors import ConfigError, PrecisionError
from mpnet.formats.cfg.read import parse_cfg
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import FP16, FP32, INT8, INT16, PRECISIONS, highest

NET = "[net]\nwidth=8\nheight=8\n"
CONV = "[convolutional]\nfilters=4\nsize=1\nactivation=linear\n"


def test_fp32_is_what_nobody_decided(network: NetworkSpec) -> None:
    plan = assign(network)
    assert plan.key == "ffffff"
    assert set(plan.origins) == {"default", "input", "always"}


def test_later_authorities_win() -> None:
    network = parse_cfg(NET.replace("[net]\n", "[net]\nfp16=1\n") + CONV + CONV + "int8=1\n" + CONV + "fp32=1\n")
    assert assign(network).key == "hqf"
    assert assign(network, "int8").key == "qqf"
    precisions = assign(network, "int8", {"last": "fp16", 0: "fp32"}, {0: FP16})
    assert precisions.key == "hqh"
    assert precisions.origins == ("sweep", "cfg line 13", "experiment: last")


def test_later_selectors_win(network: NetworkSpec) -> None:
    assert assign(network, layers={"all": "int8", "heads": "fp16", "last": "fp32"}).key == "qqqhqf"
    assert assign(network, layers={"last": "fp32", "heads": "fp16", "all": "int8"}).key == "qqqqqq"


def test_the_example_of_the_documentation(network: NetworkSpec) -> None:
    assert assign(network, "int8", {0: "fp16", "*/yolo-1": "fp32"}).key == "hqqfqq"


def test_layers_without_weights_follow_their_tensor(network: NetworkSpec) -> None:
    plan = assign(network, "int8", {0: "fp16", 2: "fp16"})
    names = {layer.name: str(plan[layer.index]) for layer in network.layers if not layer.has_weights}
    assert names == {
        "shortcut-1": "fp16",
        "dropout-1": "fp16",
        "maxpool-1": "fp16",
        "maxpool-2": "fp16",
        "yolo-1": "fp32",
        "route-1": "fp16",
        "upsample-1": "fp32",
        "route-2": "fp32",
        "yolo-2": "fp32",
    }


def test_a_route_of_differing_inputs_takes_the_highest(network: NetworkSpec) -> None:
    plan = assign(network, layers={"upsample-1": "int8", "shortcut-1": "fp16"})
    assert plan[12] == FP16
    assert plan.key == "ffffff+3:h,11:q"


def test_halves_and_bfloat16_meet_in_fp32(network: NetworkSpec) -> None:
    # Neither holds the other's values: halves end at 65504, bfloat16 has fewer digits.
    plan = assign(network, layers={"upsample-1": "bf16", "shortcut-1": "fp16"})
    assert (plan.key, str(plan[12])) == ("ffffff+3:h,11:b", "fp32")
    plan = assign(network, layers={"upsample-1": "bf16", "shortcut-1": "int8"})
    assert (plan.key, str(plan[12])) == ("ffffff+3:q,11:b", "bf16")


def test_codes_of_both_widths_meet_in_the_wider(network: NetworkSpec) -> None:
    assert highest([INT8, INT16]) is INT16
    assert highest([INT16, FP16]) is FP32


def test_keys_say_everything(network: NetworkSpec) -> None:
    plan = assign(network, "int8", {"maxpool-*": "int8", "heads": "fp16", "route-2": "fp16"})
    assert plan.key == "qqqhqh+5:q,6:q,12:h"
    assert assign_key(network, plan.key).precisions == plan.precisions


def test_variants_are_for_convolutions(network: NetworkSpec) -> None:
    assert assign(network, "fp16_half", {0: "fp32_winograd"}).key == "wHHHHH"
    with pytest.raises(PrecisionError) as excinfo:
        assign(network, layers={"maxpool-1": "fp16_half"})
    assert str(excinfo.value) == "t.cfg:27: layer 5 (maxpool-1): fp16_half is for convolutions; use fp16"


@pytest.mark.parametrize(
    ("layers", "error", "message"),
    [
        ({"heads": "int9"}, PrecisionError, f"unknown precision 'int9'; known are {', '.join(PRECISIONS)}"),
        (
            {"yolo-1": "int8"},
            PrecisionError,
            "t.cfg:37: layer 8 (yolo-1): [yolo] is always fp32, int8 is not possible; leave it out of precision.layers",
        ),
        (
            {"nothing": "int8"},
            ConfigError,
            "layers 'nothing': nothing in t.cfg has this index, name or group; groups are all, conv, first, last, heads, "
            "trunk, 3x3, strided, depthwise, 1x1, head-1, head-2 (see mpnet show)",
        ),
    ],
)
def test_what_cannot_be(network: NetworkSpec, layers: dict[str | int, str], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as excinfo:
        assign(network, layers=dict(layers))
    assert str(excinfo.value) == message


PROMISE = NET + CONV + "fp16=1\n[maxpool]\n" + CONV + "fp16=1\nquantize=0\n"


def test_a_kept_promise_needs_nothing() -> None:
    assert assign(parse_cfg(PROMISE)).key == "hh"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            PROMISE.replace("fp16=1", "fp32=1", 1),
            "t.cfg:15: quantize=0 promises that layer 2 (conv-2, fp16) needs no conversion, but it gets fp32 from layer 1 "
            "(maxpool-1, fp32); set quantize=1 or one precision",
        ),
        (
            PROMISE.replace("[maxpool]", "[dropout]").replace("fp16=1", "int8=1"),
            "t.cfg:15: quantize=0 promises that layer 2 (conv-2, int8) needs no conversion, but it gets fp32 from layer 0 "
            "(conv-1, int8), whose sums are de-scaled to fp32; set quantize=1 or one precision",
        ),
        (
            NET + CONV + "int8=1\nquantize=0\n",
            "t.cfg:9: quantize=0 promises that layer 0 (conv-1, int8) needs no conversion, but it gets fp32 from the image, "
            "which is fp32; set quantize=1 or one precision",
        ),
    ],
)
def test_a_broken_promise_names_both_layers(text: str, message: str) -> None:
    with pytest.raises(PrecisionError) as excinfo:
        assign(parse_cfg(text, "t.cfg"))
    assert str(excinfo.value) == message


def test_experiments_and_sweeps_lift_promises() -> None:
    network = parse_cfg(PROMISE)
    assert assign(network, layers={2: "int8"}).key == "hq"
    assert assign(network, overrides={0: INT8}).key == "qh"
    assert assign(network, overrides={2: FP32}).key == "hf"
    with pytest.raises(PrecisionError, match="quantize=0 promises"):
        assign(network, layers={0: "int8"})
