# SPDX-License-Identifier: MIT
"""The rounding that a quantised file does behind its heads, which mpnet's own decoders don't do."""

from __future__ import annotations

from typing import Collection

from mpnet.importing.graph import Node, NodeGraph
from mpnet.messages import shown

_SCORES = ("Sigmoid", "Softmax")
_MOVES = ("Concat", "Reshape", "Transpose", "Slice", "Split", "Squeeze", "Unsqueeze", "Identity", "Gather", "StridedSlice")
_LARGE_STEP = 0.05
"""Of scores from 0 to 1; a network that has learnt something gives many scores that differ by less."""


def describe_rounding_behind(graph: NodeGraph, needed_nodes: Collection[str]) -> str:
    """Return a line about the quantised tensors behind the heads, '' where there is none.

    needed_nodes: names of the nodes that the heads depend on.
    """
    nodes = [node for node in graph.nodes if node.name not in needed_nodes]
    rounded = [name for node in nodes for name in node.outputs if name in graph.quantization]
    if not rounded:
        return ""
    text = (
        f"rounding behind the heads is left out: the file rounds {len(rounded)} tensors of its box decoding, mpnet decodes in "
        "fp32, so boxes and scores are more exact than the file's"
    )
    steps = {name: float(graph.quantization[name].scale.max()) for name in _follow_scores(nodes) if name in rounded}
    if not steps:
        return text
    name = max(steps, key=lambda name: steps[name])
    step = steps[name]
    if step < _LARGE_STEP:
        return f"{text}; its scores have steps of at most {step:.2g} ({shown(name)})"
    return (
        f"{text}. The file's scores have steps of {step:.3g} ({shown(name)}, which holds boxes as well or has too wide a "
        f"range): what is below {step / 2:.2g} is 0 there, so it finds less than mpnet says, or nothing; quantise the model "
        "again without the nodes behind its heads (nodes_to_exclude), which then gives what mpnet gives"
    )


def _follow_scores(nodes: list[Node]) -> list[str]:
    """Return the tensors that hold what a logistic function or a softmax gives, moved or joined with others."""
    scores: list[str] = []
    for node in nodes:
        if node.operator in _SCORES or (node.operator in _MOVES and any(name in scores for name in node.inputs)):
            scores += node.outputs
    return scores
