# SPDX-License-Identifier: MIT
"""Files in float16: their constants and casts become float32, in which mpnet computes whatever the file says."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpnet.importing.graph import NodeGraph

_FLOAT32, _HALF_FLOATS = 1, (10, 16)  # of TensorProto: float16 and bfloat16
_HALF_NAMES = ("float16", "bfloat16")


def widen_half_floats(graph: NodeGraph) -> None:
    """Make every float16 or bfloat16 a float32 of the same value.

    Box decoders are recognised by what the nodes behind the heads give, which float16 rounds to half a pixel; and NumPy joins
    the two types where a file of ONNX has casts.
    """
    for name, array in graph.constants.items():
        if array.dtype.name in _HALF_NAMES:
            graph.constants[name] = _widen(array)
            graph.has_half_floats = True
    for node in graph.nodes:
        node.attributes = {key: _widen(value) for key, value in node.attributes.items()}
        if node.operator == "Cast" and node.attributes.get("to") in _HALF_FLOATS:
            node.attributes["to"] = _FLOAT32


def _widen(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.name in _HALF_NAMES:
        return value.astype(np.float32)
    return value
