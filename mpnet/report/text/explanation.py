# SPDX-License-Identifier: MIT
"""Layers that lose objects, for the terminal."""

from __future__ import annotations

from rich.console import Console

from mpnet.diagnose.explanation_document import ExplanationDocument
from mpnet.evaluation.agreement import BASELINE_SCORE
from mpnet.evaluation.metrics import SIZES
from mpnet.messages import counted, percent_text
from mpnet.report.data.explanation import heading, sentence
from mpnet.report.text.terminal import Share, print_table


def print_explanation(document: ExplanationDocument, console: Console) -> None:
    """Print the document of `mpnet explain`: a paragraph for each object, then the layers."""
    counts = document.lost
    console.print(
        f"{document.name} in {document.words}: of what {document.baseline_words} finds in {counted(document.images)} "
        f"at score {BASELINE_SCORE:g} or more, {counts['lost']} are lost, {counts['moved']} moved, {counts['doubled']} doubled",
        soft_wrap=True,
    )
    if not document.objects:
        console.print("nothing to explain: the configuration finds all that the baseline finds at this score")
        return
    for row in document.objects:
        console.print(f"\n{heading(row)}\n  {sentence(row)}", markup=False, soft_wrap=True)
    console.print()
    _print_layers(document, console)


def _print_layers(document: ExplanationDocument, console: Console) -> None:
    layers = [(row, row.percent) for row in document.layers if row.percent is not None]
    largest = max((percent for _, percent in layers), default=0.0)
    rows = [
        [
            row.name,
            row.precision,
            percent_text(percent, 0),
            Share(max(0.0, percent / largest) if largest > 0 else 0.0),
            str(row.brings_back or ""),
            percent_text(row.bit_operations_percent),
            *(percent_text(row.by_size[size], 0) for size in SIZES),
            *(percent_text(share, 0) for share in row.by_place.values()),
        ]
        for row, percent in sorted(layers, key=lambda pair: -pair[1])
    ]
    if rows:
        columns = ["layer", "precision", "share", "", "brings back", "raised costs", *SIZES, "at the edge", "inside"]
        title = f"layers by their share of what these {len(document.objects)} objects lost"
        print_table(console, columns, rows, title, left=(0, 1, 3), optional=(5, 6, 7, 8, 9, 10))
