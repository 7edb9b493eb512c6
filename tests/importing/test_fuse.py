# SPDX-License-Identifier: MIT
"""Operations that become one layer: what is left is complete, whatever left the graph before."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.importing.fuse import fuse
from mpnet.importing.layer_graph import LayerGraph, LayerOperation

SHAPE = (2, 4, 4)


def chain(gates: int, unread: int) -> LayerGraph:
    """relu6(x + 3) so many times, one behind the other, and operations that nothing reads."""
    operations = [LayerOperation("activation", [], ["image"], f"unread {at}", SHAPE, {"word": "relu"}) for at in range(unread)]
    x = "image"
    for at in range(gates):
        line = {"scale": np.ones(SHAPE[0]), "shift": np.full(SHAPE[0], 3.0)}
        operations.append(LayerOperation("affine", [f"add {at}"], [x], f"sum {at}", SHAPE, line))
        x = f"gate {at}"
        operations.append(LayerOperation("activation", [f"cut {at}"], [f"sum {at}"], x, SHAPE, {"word": "relu6"}))
    shapes = {operation.output: SHAPE for operation in operations}
    return LayerGraph(operations, {"image": SHAPE, **shapes}, {})


@pytest.mark.parametrize("unread", [0, 1, 50])
def test_new_operations_stay_where_others_left(unread: int) -> None:
    """Python gives a new object the id of one that is gone."""
    layers = chain(50, unread)
    fuse(layers, [layers.operations[-1].output])
    made = {"image", *layers.makers()}
    assert [name for operation in layers.operations for name in operation.inputs if name not in made] == []
    words = [operation.values.get("word", operation.activation) for operation in layers.operations]
    assert words.count("hard_sigmoid") == 50
