# SPDX-License-Identifier: MIT
"""Non-maximum suppression that a file does behind its boxes: mpnet's own takes its place, with what the file says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

import numpy as np

from mpnet.importing.graph import Node, NodeGraph

# What computing how much boxes overlap takes; choosing the best of them does not.
_OVERLAP_ARITHMETIC = ("Min", "Max", "Log", "Sqrt", "Trilu")
# Operators that have how many boxes, overlap and score among their inputs, from this one on.
_BY_INPUTS = {"NonMaxSuppression": 2, "NON_MAX_SUPPRESSION": 2}
# Attributes of TensorRT's plugins, by their two spellings, and of TensorFlow Lite's operator with box decoding.
_ATTRIBUTES = (("iou_threshold", "iouThreshold"), ("score_threshold", "scoreThreshold"), ("max_output_boxes", "keepTopK"))


@dataclass(frozen=True)
class Suppression:
    """What a file says of its suppression.

    node:       its name. operator: its operator; '' where arithmetic of the file's own does it.
    overlap:    from which on the worse of two boxes goes, 0 to 1; None: it is no constant.
    confidence: of scores, likewise. max_boxes: of a class or an image; None: not said.
    """

    node: str
    operator: str
    overlap: float | None = None
    confidence: float | None = None
    max_boxes: int | None = None

    def describe(self) -> str:
        """Return a line for people."""
        if not self.operator:
            return (
                f"the file suppresses overlapping boxes by arithmetic behind {self.node}, whose threshold mpnet does not read: "
                "detection.nms does it instead, at its default; set it to what the file was exported with"
            )
        limits = [
            *([] if self.overlap is None else [f"overlaps above {self.overlap:.4g}"]),
            *([] if not self.confidence else [f"scores above {self.confidence:.4g}"]),
            *([] if self.max_boxes is None else [f"at most {self.max_boxes} boxes"]),
        ]
        instead = "" if self.overlap is None else f" ({self.overlap:.4g}, within each class)"
        confidence = f"; detection.confidence: {self.confidence:.4g} leaves out what the file does" if self.confidence else ""
        limits_text = ", ".join(limits) or "its limits are computed as it runs"
        return f"the file's own suppression ({self.operator}: {limits_text}) is replaced by detection.nms{instead}{confidence}"


def find_suppression(graph: NodeGraph, nodes: Sequence[Node]) -> Suppression | None:
    """Return the suppression among the nodes behind the heads; None: there is none."""
    for node in nodes:
        operator = node.operator.rpartition(".")[2]
        if operator in _BY_INPUTS:
            first = _BY_INPUTS[operator]
            max_boxes, overlap, confidence = (_read_number(graph, node, index) for index in range(first, first + 3))
            return _make_suppression(node, operator, overlap or 0.0 if len(node.inputs) < 4 else overlap, confidence, max_boxes)
        if operator == "TFLite_Detection_PostProcess" or "NMS" in operator.upper().replace("_", ""):
            numbers = [
                next((node.attributes[name] for name in names if isinstance(node.attributes.get(name), (int, float))), None)
                for names in _ATTRIBUTES
            ]
            return _make_suppression(node, operator, *(None if number is None else round(number, 6) for number in numbers))
    best_nodes = _list_nodes_behind_best(nodes)
    arithmetic = [node for node in best_nodes if node.operator in _OVERLAP_ARITHMETIC]
    return Suppression(arithmetic[0].name, "") if arithmetic else None


def takes_best(nodes: Sequence[Node]) -> bool:
    """Return whether some of the nodes takes the best boxes."""
    return any(node.operator == "TopK" for node in nodes)


def _make_suppression(
    node: Node, operator: str, overlap: float | None, confidence: float | None, max_boxes: float | None
) -> Suppression:
    if overlap is not None and not 0 <= overlap <= 1:
        overlap = None
    if confidence is not None and not 0 <= confidence < 1:
        confidence = None
    # Programs write the largest number that there is for no limit.
    is_limit = max_boxes is not None and 0 < max_boxes < 1 << 24
    return Suppression(node.name, operator, overlap, confidence, int(max_boxes) if is_limit and max_boxes is not None else None)


def _read_number(graph: NodeGraph, node: Node, index: int) -> float | None:
    """Return the number that a constant input holds; None where there is none, or it is no number."""
    array = graph.constants.get(node.inputs[index]) if index < len(node.inputs) else None
    if array is None or array.size != 1 or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        return None
    return round(float(array.ravel()[0]), 6)  # as it was before it became float32


def _list_nodes_behind_best(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes that depend on which boxes are the best."""
    tensors: set[str] = set()
    behind = []
    for node in nodes:
        if node.operator == "TopK":
            tensors.update(node.outputs)
        elif tensors.intersection(node.inputs):
            tensors.update(node.outputs)
            behind.append(node)
    return behind
