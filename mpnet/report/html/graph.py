# SPDX-License-Identifier: MIT
"""A network drawn by its layers: precisions as colours, conversions at edges, time and error as shades."""

from __future__ import annotations

import math
from html import escape
from typing import Mapping, Sequence

from mpnet.engine.cost import LayerCost
from mpnet.messages import count_text, visible_text
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import PRECISIONS
from mpnet.report.colours import COLOURS
from mpnet.report.data.words import shape_text
from mpnet.report.html.svg import LETTER, PRINT, Canvas

ROW, BOX = 34, 26
"""Pixels from one layer to the next, and the height of its box."""
LANE = 12
"""Pixels between two connections that pass by layers."""
CELL = 92
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title><style>body{{margin:1rem;background:#fff}}svg{{max-width:100%;height:auto}}</style></head>
<body>{drawing}</body></html>
"""


def draw_graph(
    network: NetworkSpec,
    rows: Sequence[LayerCost],
    layer_ms: Mapping[int, float] | None = None,
    layer_db: Mapping[int, float] | None = None,
) -> str:
    """Return an SVG document: the layers from top to bottom, with a line for each tensor that a layer reads.

    rows: of the layers, as `engine.cost.layer_costs` has them. layer_ms: milliseconds by layer index. layer_db: signal to
    noise of a layer's result against fp32, in dB, by layer index; a darker shade is more time, or more error.
    """
    texts = [f"{row.index}  {row.name}  {shape_text(row.shape)}" for row in rows]
    texts = [text + (f"  {count_text(row.macs)} MACs" if row.macs else "") for text, row in zip(texts, rows, strict=True)]
    lanes, count = _lanes(network)
    notes = [", ".join(row.conversions) for row in rows]
    left = 24 + LANE * count
    wide = round(LETTER * max(map(len, texts), default=10)) + 80
    note_wide = round(LETTER * max(map(len, notes), default=0)) + 16
    columns = [("time", layer_ms or {}, "ms", False), ("error", layer_db or {}, "dB", True)]
    columns = [column for column in columns if column[1]]
    precisions = [name for name in COLOURS if any(PRECISIONS[row.precision].base == name for row in rows)]
    top = 56
    width = left + wide + note_wide + CELL * len(columns) + 12
    canvas = Canvas(width, top + ROW * len(rows) + 8, PRINT, (left, top, 0, 0))
    title = f"{network.source}: precisions {', '.join(precisions)}"
    canvas.text(8, 18, title, "start", 13)
    for number, name in enumerate(precisions):
        canvas.rect(8 + 80 * number, 30, 10, 10, name)
        canvas.text(22 + 80 * number, 39, name, "start")
    x_cells = left + wide + note_wide
    for number, (heading, *_) in enumerate(columns):
        canvas.text(x_cells + CELL * number + CELL / 2, top - 8, heading)
    middle = [top + ROW * number + BOX / 2 for number in range(len(rows))]
    for (source, layer), lane in lanes.items():
        y0, y1 = middle[source], middle[layer]
        if lane < 0:
            canvas.segment(left + 20, y0 + BOX / 2, left + 20, y1 - BOX / 2, "baseline", 1.5)
        else:
            x = left - LANE * (lane + 1)
            canvas.path([(left, y0 + 5), (x, y0 + 5), (x, y1 - 5), (left, y1 - 5)], "baseline")
    for number, (row, text, note) in enumerate(zip(rows, texts, notes, strict=True)):
        y, base = middle[number] - BOX / 2, PRECISIONS[row.precision].base
        words = f"{text}; {row.type}, {row.precision}; {', '.join(row.selectors)}"
        canvas.rect(left, y, wide, BOX, f"{base}-light", words)
        canvas.rect(left, y, 5, BOX, base)
        canvas.text(left + 12, y + 17, text, "start")
        canvas.text(left + wide - 6, y + 17, row.precision, "end")
        if note:
            canvas.text(left + wide + 8, y + 17, note, "start", 10)
        for column, (_, values, unit, inverse) in enumerate(columns):
            _cell(canvas, x_cells + CELL * column, y, row.index, values, unit, inverse)
    return canvas.document(title)


def graph_page(title: str, drawing: str) -> str:
    """Return the drawing as an HTML page, which asks for nothing from anywhere."""
    return visible_text(_PAGE.format(title=escape(title), drawing=drawing))


def _cell(canvas: Canvas, x: float, y: float, index: int, values: Mapping[int, float], unit: str, inverse: bool) -> None:
    value = values.get(index, math.nan)
    if not math.isfinite(value):
        return
    finite = [other for other in values.values() if math.isfinite(other)]
    low, high = min(finite), max(finite)
    share = (value - low) / (high - low) if high > low else 1.0
    share = 1 - share if inverse else share
    canvas.dot(x + 14, y + BOX / 2, 9, "chosen", 0.08 + 0.92 * share)
    canvas.text(x + 30, y + 17, f"{value:.2f} {unit}", "start")


def _lanes(network: NetworkSpec) -> tuple[dict[tuple[int, int], int], int]:
    """Return where each connection is drawn, and how many lanes there are beside the layers.

    -1: straight down to the next layer; else the number of its lane. Connections that overlap have different lanes.
    """
    layers = network.layers
    lane_ends: list[int] = []  # by lane: the layer down to which it is taken
    lanes = {(layer.index - 1, layer.index): -1 for layer in layers[1:] if layer.index - 1 in layer.inputs}
    pairs = {(source, layer.index) for layer in layers for source in layer.inputs if 0 <= source < layer.index - 1}
    for source, target in sorted(pairs):
        lane = next((number for number, end in enumerate(lane_ends) if end <= source), len(lane_ends))
        lane_ends[lane : lane + 1] = [target]
        lanes[source, target] = lane
    return lanes, len(lane_ends)
