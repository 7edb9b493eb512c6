# SPDX-License-Identifier: MIT
"""Operations that become one layer: what is left is complete, whatever left the graph before."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.importing.layer_graph import LayerGraph, LayerOperation
from mpnet.importing.passes.fuse import fuse

SHAPE = (2, 4, 4)


def chain(gates: int, unread: int) -> LayerGraph:
    """Build relu6(x + 3) so many times, one behind the other, and operations that nothing reads."""
    operations = [
        LayerOperation("activation", [], ["image"], f"unread {index}", SHAPE, {"word": "relu"}) for index in range(unread)
    ]
    x = "image"
    for index in range(gates):
        line = {"scale": np.ones(SHAPE[0]), "shift": np.full(SHAPE[0], 3.0)}
        operations.append(LayerOperation("affine", [f"add {index}"], [x], f"sum {index}", SHAPE, line))
        x = f"gate {index}"
        operations.append(LayerOperation("activation", [f"cut {index}"], [f"sum {index}"], x, SHAPE, {"word": "relu6"}))
    shapes = {operation.output: SHAPE for operation in operations}
    return LayerGraph(operations, {"image": SHAPE, **shapes}, {})


@pytest.mark.parametrize("unread", [0, 1, 50])
def test_new_operations_stay_where_others_left(unread: int) -> None:
    """Python gives a new object the id of one that is gone."""
    layers = chain(50, unread)
    fuse(layers, [layers.operations[-1].output])
    produced = {"image", *layers.makers()}
    assert [name for operation in layers.operations for name in operation.inputs if name not in produced] == []
    words = [operation.values.get("word", operation.activation) for operation in layers.operations]
    assert words.count("hard_sigmoid") == 50


def branch(name: str, size: int, groups: int = 1, stride: int = 1, dilation: int = 1, x: str = "x") -> LayerOperation:
    """Build a convolution of 4 channels by random weights that keeps the sides, over the stride."""
    random = np.random.default_rng(size + stride)
    values = {
        "weights": random.normal(size=(4, 4 // groups, size, size)).astype(np.float32),
        "weights_name": name,
        "bias": random.normal(size=4).astype(np.float32),
        "groups": groups,
        "strides": [stride] * 2,
        "dilations": [dilation] * 2,
        "pads": [size // 2 * dilation] * 4,
    }
    return LayerOperation("conv", [name], [x], name, SHAPES[0], values)


def norm(name: str) -> LayerOperation:
    return LayerOperation("affine", [name], ["x"], name, SHAPES[0], {"scale": np.arange(1.0, 5.0), "shift": np.full(4, 0.1)})


SHAPES = ((4, 6, 6), (4, 6, 6))


def summed(*branches: LayerOperation, kept_tensor: str = "") -> tuple[LayerGraph, int]:
    """Build the sum of all branches of one tensor, and how many were merged."""
    operations = [LayerOperation("maxpool", [], ["image"], "x", SHAPES[0]), *branches]
    total = branches[0].output
    for number, branch_operation in enumerate(branches[1:]):
        total = f"sum {number}"
        inputs = [operations[-1].output if number else branches[0].output, branch_operation.output]
        operations.append(LayerOperation("add", [total], inputs, total, SHAPES[0]))
    layers = LayerGraph(operations, {"image": SHAPES[0], **{operation.output: operation.shape for operation in operations}}, {})
    return layers, fuse(layers, [total, kept_tensor])


def test_parallel_convolutions_are_one_rounded_once() -> None:
    branches = [branch("3x3", 3), branch("1x1", 1), norm("norm"), branch("5x5", 5)]
    layers, merged = summed(*branches)
    [pool, conv] = layers.operations
    assert (pool.kind, conv.kind, conv.inputs, merged) == ("maxpool", "conv", ["x"], 3)
    expected = branches[3].values["weights"].astype(np.float64)
    expected[:, :, 1:4, 1:4] += branches[0].values["weights"]
    expected[:, :, 2:3, 2:3] += branches[1].values["weights"]
    expected[:, :, 2, 2] += np.diag(np.arange(1.0, 5.0))
    np.testing.assert_allclose(conv.values["weights"], expected, rtol=1e-15)
    bias = sum(convolution.values["bias"].astype(np.float64) for convolution in (branches[0], branches[1], branches[3])) + 0.1
    np.testing.assert_allclose(conv.values["bias"], bias, rtol=1e-15)
    assert conv.nodes == ["5x5", "3x3", "1x1", "sum 0", "norm", "sum 1", "sum 2"]


def test_so_are_depthwise_ones_and_those_that_stride() -> None:
    layers, merged = summed(branch("3x3", 3, 4), norm("norm"))
    assert merged == 1
    np.testing.assert_array_equal(
        layers.operations[-1].values["weights"][:, 0, 1, 1],
        branch("", 3, 4).values["weights"][:, 0, 1, 1] + np.arange(1.0, 5.0),
    )
    assert summed(branch("1x1", 1, 2, stride=2), branch("3x3", 3, 2, stride=2))[1] == 1


@pytest.mark.parametrize(
    "branches",
    [
        (branch("3x3", 3), branch("in groups", 1, groups=4)),
        (branch("3x3", 3), branch("strided", 1, stride=2)),
        (branch("3x3", 3, dilation=2), branch("near", 3)),
        (branch("3x3", 3), branch("of another", 1, x="image")),
        (norm("norm"), norm("another")),
    ],
    ids=lambda branches: branches[1].output,
)
def test_what_is_no_branch_stays(branches: tuple[LayerOperation, LayerOperation]) -> None:
    layers, merged = summed(*branches)
    assert (merged, len(layers.operations)) == (0, 4)


def test_a_branch_that_somebody_else_reads_stays() -> None:
    assert summed(branch("3x3", 3), branch("1x1", 1), kept_tensor="1x1")[1] == 0
