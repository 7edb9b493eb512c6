# SPDX-License-Identifier: MIT
"""Box decoding behind the last layers that mpnet knows is found by trying it.

The nodes behind the layers are computed on zeros and on random values; where some tensor of theirs is what one of the decoders
gives for the same values, that decoder takes their place. Anchors are what comes out of zeros.
"""

from __future__ import annotations

from itertools import product
from typing import Callable

import numpy as np

from mpnet.importing.graph import Array, Node, NodeGraph, Refused
from mpnet.importing.heads import Head, HeadChoice
from mpnet.importing.layer_graph import LayerGraph
from mpnet.importing.operators import Budget, OperatorCall, evaluate
from mpnet.importing.passes.box_decoders import DecodingTrial, FoundHeads, Level, try_yolov5, try_yolov8, try_yolox
from mpnet.importing.passes.distance_decoders import recognize_raw_distances, try_distances
from mpnet.importing.passes.ssd_decoder import try_ssd
from mpnet.importing.passes.suppression import find_suppression, takes_best

_MAX_NODES, _MAX_VALUES = 400, 1 << 24
# What trying may take, both times together: some seconds, and 512 MB.
_MAX_WORK, _MAX_BYTES = 1 << 31, 1 << 29
_SEED = 7
_DECODERS: tuple[Callable[[DecodingTrial], FoundHeads], ...] = (try_yolov8, try_yolov5, try_yolox, try_ssd, try_distances)


def list_leaving_tensors(graph: NodeGraph, layers: LayerGraph) -> list[str]:
    """Return the tensors that leave the layers: outputs, and what nodes that are no layers read; not the image."""
    lifted = layers.node_names()
    names = [name for node in graph.nodes if node.name not in lifted for name in node.inputs]
    return [name for name in dict.fromkeys([*names, *graph.outputs]) if name in layers.shapes and name != graph.image]


def recognize_decoder(
    graph: NodeGraph, layers: LayerGraph, leaving_names: list[str], decoding_nodes: list[Node]
) -> HeadChoice | None:
    """Return the decoder that the nodes behind the layers are, None for anything else.

    leaving_names: tensors that these nodes read. decoding_nodes: the nodes behind the layers.
    """
    levels = _group_levels(layers, leaving_names)
    height, width = graph.shapes[graph.image][2:]
    if len(levels) > 16 or sum(sum(level.channels) * level.cells for level in levels) > _MAX_VALUES:
        return None
    random = np.random.Generator(np.random.PCG64(_SEED))
    shapes = {name: (1, *layers.shapes[name]) for name in leaving_names}
    inputs: list[dict[str, Array]] = [
        {name: np.zeros(shape, np.float32) for name, shape in shapes.items()},
        {name: random.uniform(0.02, 0.98, shape).astype(np.float32) for name, shape in shapes.items()},
    ]
    budget = Budget(_MAX_WORK, _MAX_BYTES)
    results = [_compute_tables(graph, decoding_nodes, values, budget) for values in inputs]
    trials = [
        DecodingTrial(graph, layers, ordered, inputs[1], results, (width, height), budget) for ordered in (levels, levels[::-1])
    ]
    for function, trial in product(_DECODERS, trials):
        found = function(trial)
        if found is not None:
            heads, classes = found
            decoded = {name for head in heads for name in head.tensors}
            if function is try_yolov8:
                heads += [Head((name,)) for name in leaving_names if name not in decoded]
            return _describe_choice(graph, heads, classes, decoding_nodes)
    assumed = recognize_raw_distances(trials[0], [node.operator for node in decoding_nodes])
    if assumed is not None:
        heads, classes, note = assumed
        return HeadChoice(heads, classes, heads[0].decoder, notes=(note,))
    return None


def _describe_choice(graph: NodeGraph, heads: list[Head], classes: int, decoding_nodes: list[Node]) -> HeadChoice:
    suppression = find_suppression(graph, decoding_nodes)
    decoder = heads[0].decoder
    if suppression is not None:
        return HeadChoice(heads, classes, decoder, suppression.overlap, (suppression.describe(),))
    if takes_best(decoding_nodes):
        note = "the file takes the best boxes as they are: detection.nms is 1.0, which suppresses none"
        return HeadChoice(heads, classes, decoder, 1.0, (note,))
    return HeadChoice(heads, classes, decoder)


def _group_levels(layers: LayerGraph, leaving: list[str]) -> list[Level]:
    grids: dict[tuple[int, int], list[str]] = {}
    for name in leaving:
        grids.setdefault(layers.shapes[name][1:], []).append(name)
    levels = [Level(tuple(names), tuple(layers.shapes[name][0] for name in names), *grid) for grid, names in grids.items()]
    return sorted(levels, key=lambda level: -level.cells)


def _compute_tables(graph: NodeGraph, nodes: list[Node], inputs: dict[str, Array], budget: Budget) -> dict[str, Array]:
    """Compute every table behind the layers that can be computed: tensors of one image with rows and columns."""
    arrays_by_name = dict(inputs)
    for node in nodes[:_MAX_NODES]:
        arrays = [arrays_by_name.get(name, graph.constants.get(name)) if name else None for name in node.inputs]
        if all(array is not None or not name for array, name in zip(arrays, node.inputs, strict=True)):
            try:
                arrays_by_name.update(zip(node.outputs, evaluate(OperatorCall(node, arrays), budget), strict=False))
            except Refused:
                continue
    return {
        name: array.reshape(array.shape[-2:])
        for name, array in arrays_by_name.items()
        if name not in inputs and (array.ndim == 2 or (array.ndim == 3 and array.shape[0] == 1))
    }
