# SPDX-License-Identifier: MIT
"""What attributes and older operator sets change about an operator: the values are ONNX Runtime's, or the node is refused.

Each stands for public reports of converters that gave other numbers in silence (docs/reliability.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnx.inliner
import pytest
from onnx import TensorProto, helper

from mpnet.errors import FormatError
from mpnet.importing import Imported
from tests.importing.conftest import heads_of, reference_heads
from tests.importing.graphs import Builder
from tests.importing.test_onnx import build_small_model

Importing = Callable[..., tuple[Path, Imported]]
Form = Callable[[Builder, str], str]
NEWEST = 17


def build_model_of(opset: int, form: Form) -> Any:
    """Return a convolution, a ReLU and what `form` adds, on (1, 3, 16, 16), written with an operator set."""
    model = build_small_model(add_layers=form)
    model.opset_import[0].version = opset
    return model


def _scaled(b: Builder, x: str, scale: float, **attributes: Any) -> str:
    return str(b.node("Resize", [x, "", b.constant([1, 1, scale, scale])], **attributes))


def _scaled_of_10(b: Builder, x: str, scale: float, mode: str) -> str:
    return str(b.node("Resize", [x, b.constant([1, 1, scale, scale])], mode=mode))


def _sliced(b: Builder, x: str, start: int, end: int, step: int) -> str:
    return str(b.node("Slice", [b.conv(x, 8), *(b.constant([value], np.int64) for value in (start, end, 1, step))]))


EQUAL: dict[str, tuple[int, Form]] = {
    "linear Resize of set 10": (10, lambda b, x: _scaled_of_10(b, x, 2, "linear")),
    "nearest Resize of set 10 to a half": (10, lambda b, x: _scaled_of_10(b, x, 0.5, "nearest")),
    "linear Upsample of set 9": (9, lambda b, x: b.node("Upsample", [x, b.constant([1, 1, 2, 2])], mode="linear")),
    "linear Upsample of set 7": (7, lambda b, x: b.node("Upsample", [x], mode="linear", scales=[1.0, 1.0, 2.0, 2.0])),
    "asymmetric linear by 3": (
        NEWEST,
        lambda b, x: _scaled(b, x, 3, mode="linear", coordinate_transformation_mode="asymmetric"),
    ),
    "Resize of two axes": (18, lambda b, x: b.node("Resize", [x, "", b.constant([2, 2])], mode="nearest", axes=[2, 3])),
    "antialias to a larger image": (18, lambda b, x: _scaled(b, x, 2, mode="linear", antialias=1)),
    "Softmax of set 11 without axis": (11, lambda b, x: b.node("Softmax", [b.node("GlobalAveragePool", [x])])),
    "Softmax of set 11 over all axes": (
        11,
        lambda b, x: b.node("Softmax", [b.node("Flatten", [b.node("GlobalAveragePool", [x])])], axis=0),
    ),
    "Clip with an upper limit alone": (NEWEST, lambda b, x: b.node("Clip", [b.conv(x, 8), "", b.constant(0.3)])),
    "Clip of set 7 with a lower limit alone": (7, lambda b, x: b.node("Clip", [b.conv(x, 8)], min=-0.1)),
    "Clip without limits": (NEWEST, lambda b, x: b.node("Clip", [b.conv(x, 8)])),
    "Pad of two axes": (
        18,
        lambda b, x: b.conv(b.node("Pad", [x, b.constant([1, 2, 1, 0], np.int64), "", b.constant([2, 3], np.int64)]), 4),
    ),
    "channels backwards": (NEWEST, lambda b, x: _sliced(b, x, -1, -(1 << 62), -1)),
    "every second channel": (NEWEST, lambda b, x: _sliced(b, x, 1, 8, 2)),
    "channels by number": (NEWEST, lambda b, x: b.node("Gather", [b.conv(x, 8), b.constant([3, 1, -1], np.int64)], 3, axis=1)),
    "output_shape that filters reach exactly": (
        NEWEST,
        lambda b, x: b.node(
            "ConvTranspose", [x, b.constant(b.random.normal(0, 0.3, (8, 5, 4, 4)))], 5, strides=[2, 2], output_shape=[16, 16]
        ),
    ),
}


@pytest.mark.parametrize("name", list(EQUAL))
def test_values_are_onnx_runtimes(name: str, importing: Importing) -> None:
    path, imported = importing(build_model_of(*EQUAL[name]))
    x = np.random.default_rng(2).random((1, *imported.network.in_shape), np.float32)
    for head, reference in zip(heads_of(imported, x), reference_heads(path, imported, x), strict=True):
        assert head.shape == reference.shape
        assert np.abs(head - reference).max() <= 2e-6 * np.abs(reference).max()


def _normalized(b: Builder, x: str, outputs: int = 1, **attributes: int) -> str:
    statistics = [b.constant(b.random.uniform(0.5, 1.5, 8)) for _ in range(4)]
    results = b.node("BatchNormalization", [x, *statistics], 8, outputs, **attributes)
    return str(results if outputs == 1 else results[0])


REFUSED: dict[str, tuple[int, Form, str]] = {
    "batch norm in training": (15, lambda b, x: _normalized(b, x, 3, training_mode=1), "it is in training"),
    "batch norm of set 9 with five results": (9, lambda b, x: _normalized(b, x, 5), "it is in training"),
    "batch norm per pixel": (
        7,
        lambda b, x: b.node(
            "BatchNormalization", [x, *(b.constant(b.random.uniform(0.5, 1.5, (8, 8, 8))) for _ in range(4))], spatial=0
        ),
        r"it has a mean for each pixel \(spatial=0\)",
    ),
    "antialias to a smaller image": (18, lambda b, x: _scaled(b, x, 0.5, mode="linear", antialias=1), r"\(antialias=1\)"),
    "nearest by 2.05": (
        NEWEST,
        lambda b, x: _scaled(b, x, 2.05, nearest_mode="floor", coordinate_transformation_mode="asymmetric"),
        "its scales give no whole number of pixels",
    ),
    "linear by 2.05": (NEWEST, lambda b, x: _scaled(b, x, 2.05, mode="linear"), "its scales give no whole number of pixels"),
    "linear of set 10 to a half": (10, lambda b, x: _scaled_of_10(b, x, 0.5, "linear"), "mode linear to 4x4"),
    "slopes along the width": (
        NEWEST,
        lambda b, x: b.node("PRelu", [b.conv(x, 8), b.constant(np.linspace(-0.2, 0.7, 8))]),
        r"its slopes of the shape \[8\] differ by pixel; one per channel, \(channels, 1, 1\), is possible",
    ),
    "product along the width": (
        NEWEST,
        lambda b, x: b.node("Mul", [b.conv(x, 8), b.node("Flatten", [b.node("GlobalAveragePool", [x])])]),
        r"joins tensors of the shapes \[1, 8, 8, 8\] and \[1, 8\]: values along the last axis",
    ),
    "swish with alpha": (24, lambda b, x: b.node("Swish", [b.conv(x, 8)], alpha=1.5), "alpha must be 1"),
    "output_shape of unequal pads": (
        NEWEST,
        lambda b, x: b.node(
            "ConvTranspose", [x, b.constant(b.random.normal(0, 0.3, (8, 5, 3, 3)))], 5, strides=[2, 2], output_shape=[16, 16]
        ),
        "with equal padding",
    ),
    "output_shape beyond the filters": (
        NEWEST,
        lambda b, x: b.node(
            "ConvTranspose", [x, b.constant(b.random.normal(0, 0.3, (8, 5, 2, 2)))], 5, strides=[2, 2], output_shape=[20, 20]
        ),
        r"its output_shape \[20, 20\] is larger than what its filters reach",
    ),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_has_no_form_is_refused_and_not_taken_for_something_else(name: str, importing: Importing) -> None:
    opset, form, reason = REFUSED[name]
    with pytest.raises(FormatError, match=reason):
        importing(build_model_of(opset, lambda b, x: b.conv(form(b, x), 80)))


def test_nodes_that_decide_what_runs_are_named(importing: Importing) -> None:
    b = Builder(16)
    x = b.conv("images", 8, 3, 2, act="Relu")
    branches = {
        name: helper.make_graph(
            [helper.make_node(operator, [x], [name])], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)]
        )
        for name, operator in (("then", "Relu"), ("else", "Neg"))
    }
    decision = helper.make_node(
        "If", [b.constant(True, np.bool_)], ["decided"], "/If", then_branch=branches["then"], else_branch=branches["else"]
    )
    b.nodes.append(decision)
    with pytest.raises(FormatError, match=r"node '/If' \(If\): decides which nodes run .*; export it without, or fold it"):
        importing(b.model(["decided"]))


def test_functions_of_the_files_own_are_named(importing: Importing) -> None:
    b = Builder(16)
    b.nodes.append(helper.make_node("Own", [b.conv("images", 8, 3, 2)], ["y"], "/Own", domain="local"))
    model = b.model(["y"])
    model.opset_import.append(helper.make_opsetid("local", 1))
    relu = helper.make_node("Relu", ["a"], ["b"])
    model.functions.append(helper.make_function("local", "Own", ["a"], ["b"], [relu], [helper.make_opsetid("", 17)]))
    with pytest.raises(
        FormatError, match=r"node '/Own' calls a function of the file's own \('Own'\); write it out with onnx.inliner"
    ):
        importing(model)
    _, imported = importing(onnx.inliner.inline_local_functions(model))
    assert imported.network.layers[0].activation == "relu"  # type: ignore[attr-defined]
