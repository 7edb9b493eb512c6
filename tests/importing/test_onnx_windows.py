# SPDX-License-Identifier: MIT
"""Windows over an image, by padding, rounding and counting: ONNX Runtime's values, or a refusal by name."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnx
import pytest

from mpnet.errors import FormatError
from mpnet.importing import Imported
from tests.importing.conftest import heads_of, reference_heads
from tests.importing.graphs import Builder
from tests.importing.test_onnx import build_small_model

Importing = Callable[..., tuple[Path, Imported]]
PADS = ([0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0])
AUTO = ("SAME_UPPER", "SAME_LOWER", "VALID")
NO_FORM = r"a cfg pads both ax|ceil_mode with count_include_pad has no form"


def is_taken(importing: Importing, opset: int, operator: str, **attributes: Any) -> bool:
    """Return whether a window is imported, which then gives ONNX Runtime's values; any other is refused for a known reason."""

    def add_layers(b: Builder, x: str) -> str:
        return str(b.node(operator, [b.conv(x, 8)], **attributes))

    model = build_small_model(add_layers=add_layers)
    model.opset_import[0].version = opset
    try:
        path, imported = importing(model)
    except FormatError as error:
        assert re.search(NO_FORM, str(error)), attributes
        return False
    x = np.random.default_rng(2).random((1, *imported.network.in_shape), np.float32)
    [head], [reference] = heads_of(imported, x), reference_heads(path, imported, x)
    assert head.shape == reference.shape, attributes
    assert np.abs(head - reference).max() <= 2e-6 * np.abs(reference).max(), attributes
    return True


@pytest.mark.slow
@pytest.mark.parametrize("pads", PADS, ids=str)
@pytest.mark.parametrize("operator", ["AveragePool", "MaxPool"])
def test_poolings_of_every_padding(operator: str, pads: list[int], importing: Importing) -> None:
    counted = (0, 1) if operator == "AveragePool" else (None,)
    taken = 0
    for size, stride, ceil, count in itertools.product((2, 3), (1, 2, 3), (0, 1), counted):
        counting = {} if count is None else {"count_include_pad": count}
        taken += is_taken(
            importing, 17, operator, kernel_shape=[size] * 2, strides=[stride] * 2, pads=pads, ceil_mode=ceil, **counting
        )
    assert taken >= (6 * len(counted) if pads in PADS[:3] else 0)


@pytest.mark.slow
@pytest.mark.parametrize("auto", AUTO)
@pytest.mark.parametrize("operator", ["AveragePool", "MaxPool"])
def test_poolings_padded_by_name(operator: str, auto: str, importing: Importing) -> None:
    counted = (0, 1) if operator == "AveragePool" else (None,)
    for size, stride, count in itertools.product((2, 3, 4), (1, 2, 3), counted):
        counting = {} if count is None else {"count_include_pad": count}
        taken = is_taken(importing, 11, operator, kernel_shape=[size] * 2, strides=[stride] * 2, auto_pad=auto, **counting)
        assert taken or auto == "SAME_LOWER"


@pytest.mark.parametrize("auto", AUTO)
def test_convolutions_padded_by_name(auto: str, importing: Importing) -> None:
    for size, stride in itertools.product((2, 3, 4), (1, 2, 3)):

        def add_layers(b: Builder, x: str, size: int = size, stride: int = stride) -> str:
            weights = b.constant(b.random.normal(0, 0.3, (6, 8, size, size)))
            return str(b.node("Conv", [x, weights], 6, kernel_shape=[size] * 2, strides=[stride] * 2, auto_pad=auto))

        path, imported = importing(build_small_model(add_layers=add_layers))
        x = np.random.default_rng(2).random((1, *imported.network.in_shape), np.float32)
        [head], [reference] = heads_of(imported, x), reference_heads(path, imported, x)
        assert head.shape == reference.shape
        assert np.abs(head - reference).max() <= 2e-6 * np.abs(reference).max()


@pytest.mark.parametrize("count", [1, 4])
def test_weights_that_are_listed_as_inputs_are_weights(count: int, importing: Importing) -> None:
    """As files before version 4 have to list them, and in any order."""
    model = build_small_model(add_layers=lambda b, x: b.conv(x, 12))
    _, plain = importing(model)
    for constant in model.graph.initializer[:count]:
        model.graph.input.insert(0, onnx.helper.make_tensor_value_info(constant.name, constant.data_type, constant.dims))
    model.ir_version = 3 if count == 4 else model.ir_version
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    _, listed = importing(model)
    assert (listed.cfg, listed.weights) == (plain.cfg, plain.weights)
