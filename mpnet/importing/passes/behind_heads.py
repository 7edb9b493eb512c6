# SPDX-License-Identifier: MIT
"""The rounding that a quantised file does behind its heads, which mpnet's own decoders don't do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Collection

from mpnet.importing.graph import Node, NodeGraph
from mpnet.messages import shown

_SCORES = ("Sigmoid", "Softmax")
_MOVES = ("Concat", "Reshape", "Transpose", "Slice", "Split", "Squeeze", "Unsqueeze", "Identity", "Gather", "StridedSlice")
_LARGE_STEP = 0.05
"""Of scores from 0 to 1; a network that has learnt something gives many scores that differ by less."""


@dataclass(frozen=True)
class RoundingBehind:
    """The rounding of a file behind its heads.

    tensors: how many it rounds. score_tensor, score_step: the one with scores whose step is largest, and that step, a real;
    '' and 0 where no score is rounded.
    """

    tensors: int
    score_tensor: str = ""
    score_step: float = 0.0

    @property
    def hides_scores(self) -> bool:
        """Return whether the step of the scores is so large that many of them become 0."""
        return self.score_step >= _LARGE_STEP

    @property
    def text(self) -> str:
        """Return what is to be known of it, for people."""
        text = (
            f"rounding behind the heads is left out: the file rounds {self.tensors} tensors of its box decoding, mpnet decodes "
            "in fp32, so boxes and scores are more exact than the file's"
        )
        if not self.score_tensor:
            return text
        if not self.hides_scores:
            return f"{text}; its scores have steps of at most {self.score_step:.2g} ({shown(self.score_tensor)})"
        return (
            f"{text}. The file's scores have steps of {self.score_step:.3g} ({shown(self.score_tensor)}, which holds boxes as "
            f"well or has too wide a range): what is below {self.score_step / 2:.2g} is 0 there, so it finds less than mpnet "
            "says, or nothing; quantise the model again without the nodes behind its heads (nodes_to_exclude), which then "
            "gives what mpnet gives"
        )


def find_rounding_behind(graph: NodeGraph, needed_nodes: Collection[str]) -> RoundingBehind | None:
    """Return what the file rounds behind its heads, None where that is nothing.

    needed_nodes: names of the nodes that the heads depend on.
    """
    nodes = [node for node in graph.nodes if node.name not in needed_nodes]
    rounded = [name for node in nodes for name in node.outputs if name in graph.quantization]
    if not rounded:
        return None
    steps = {name: float(graph.quantization[name].scale.max()) for name in _follow_scores(nodes) if name in rounded}
    if not steps:
        return RoundingBehind(len(rounded))
    name = max(steps, key=lambda name: steps[name])
    return RoundingBehind(len(rounded), name, steps[name])


def _follow_scores(nodes: list[Node]) -> list[str]:
    """Return the tensors that hold what a logistic function or a softmax gives, moved or joined with others."""
    scores: list[str] = []
    for node in nodes:
        if node.operator in _SCORES or (node.operator in _MOVES and any(name in scores for name in node.inputs)):
            scores += node.outputs
    return scores
