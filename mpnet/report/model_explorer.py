# SPDX-License-Identifier: MIT
"""A network with its precisions as Model Explorer reads it: a graph, and node data, which colour its nodes.

https://github.com/google-ai-edge/model-explorer: a file of graphs has a `label` and `graphs`, one of node data the `results` of
each graph by the ids of its nodes.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Mapping, Sequence

from mpnet.engine.cost import LayerCost
from mpnet.formats.files.atomic import write_text
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import PRECISIONS
from mpnet.report.colours import COLOURS
from mpnet.report.data.words import shape_text

GRAPH = "network"
"""The id of the one graph."""


def write_graph(
    network: NetworkSpec, rows: Sequence[LayerCost], path: Path, layer_ms: Mapping[int, float], layer_db: Mapping[int, float]
) -> list[Path]:
    """Write the graph as `path`, and beside it node data: precisions, and time and error where they are known.

    rows, layer_ms, layer_db: as `report.html.graph.draw_graph` takes them. Result: all files that were written.
    """
    files = {path: graph_json(network, rows), path.with_name(f"{path.stem}-precision.json"): precision_json(rows)}
    for name, values, colours in (("time", layer_ms, ("#ffffff", "#c2185b")), ("error", layer_db, ("#c2185b", "#ffffff"))):
        finite = {index: value for index, value in values.items() if math.isfinite(value)}
        if finite:
            files[path.with_name(f"{path.stem}-{name}.json")] = values_json(finite, colours)
    for path, document in files.items():
        write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
    return list(files)


def graph_json(network: NetworkSpec, rows: Sequence[LayerCost]) -> dict[str, object]:
    """Return a graph with a node for each layer, by its index, with an edge from each layer that it reads."""
    nodes = []
    for row in rows:
        values = {
            "layer": row.name,
            "precision": row.precision,
            "conversions": ", ".join(row.conversions),
            "shape": shape_text(row.shape),
            "MACs": f"{row.macs:,}",
            "weight bytes": f"{row.weight_bytes:,}",
            "selectors": ", ".join(row.selectors),
        }
        sources = [source for source in network.layers[row.index].inputs if source >= 0]
        nodes.append(
            {
                "id": str(row.index),
                "label": row.type,
                "namespace": "",
                "attrs": [{"key": key, "value": value} for key, value in values.items() if value],
                "incomingEdges": [
                    {"sourceNodeId": str(source), "sourceNodeOutputId": "0", "targetNodeInputId": str(number)}
                    for number, source in enumerate(sources)
                ],
            }
        )
    return {"label": Path(network.source).name, "graphs": [{"id": GRAPH, "nodes": nodes}]}


def precision_json(rows: Sequence[LayerCost]) -> dict[str, object]:
    """Return node data of precisions, in the colours of reports; values that are no numbers are shown as they are."""
    colours = {row.precision: COLOURS[PRECISIONS[row.precision].base].on_white.background for row in rows}
    results = {str(row.index): {"value": row.precision, "bgColor": colours[row.precision]} for row in rows}
    return {GRAPH: {"results": results}}


def values_json(values: Mapping[int, float], colours: tuple[str, str]) -> dict[str, object]:
    """Return node data of one number a layer. colours: of the least and of the largest."""
    gradient = [{"stop": stop, "bgColor": colour} for stop, colour in enumerate(colours)]
    return {GRAPH: {"results": {str(index): {"value": value} for index, value in values.items()}, "gradient": gradient}}
