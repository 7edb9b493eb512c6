# SPDX-License-Identifier: MIT
"""Which layers lose objects, for the terminal and as pictures of the objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping

from rich.console import Console

from mpnet.evaluation.agreement import BASELINE_SCORE
from mpnet.evaluation.metrics import SIZES, size_of
from mpnet.explain.explain import Explanation
from mpnet.explain.objects import DOUBLED, KEPT, MOVED
from mpnet.report.images import Gallery, write_changes
from mpnet.report.model import ObjectChange
from mpnet.report.terminal import Share, print_table
from mpnet.trial.reopen import image_loader

NAMED = 3
"""Layers that a sentence names at most."""
LEAST = 10.0
"""Share, percent, below which a layer is not named where another one is."""
LEAST_CHANGE = 0.05
"""Change of a score of which little can be said: many layers can push it across the threshold."""


def print_explanation(document: Mapping[str, Any], console: Console) -> None:
    """The document of `mpnet explain`: a paragraph for each object, then the layers."""
    lost = document["lost"]
    console.print(
        f"{document['name']} in {document['words']}: of what {document['baseline_words']} finds in {document['images']} "
        f"images, {lost['lost']} are lost, {lost['moved']} moved, {lost['doubled']} doubled",
        soft_wrap=True,
    )
    if not document["objects"]:
        console.print("nothing to explain: the configuration finds all that the baseline finds")
        return
    for row in document["objects"]:
        console.print(f"\n{heading(row)}\n  {sentence(row)}", markup=False, soft_wrap=True)
    console.print()
    _print_layers(document, console)


def heading(row: Mapping[str, Any]) -> str:
    """What became of an object."""
    edge = ", at the edge" if row["at_edge"] else ""
    detection = "a second detection of " if row["kind"] == DOUBLED else ""
    beside = f", beside it {row['beside_score']:.2f}" if row["kind"] == MOVED else ""
    return (
        f"{row['object']}  {row['class']}, {row['size']}{edge}: {row['kind']}, {detection}score "
        f"{row['baseline_score']:.2f} -> {row['score']:.2f}{beside}"
    )


def sentence(row: Mapping[str, Any]) -> str:
    """Which layers lose the object, and what brings it back."""
    if row["kind"] == KEPT:
        return "is found by both"
    way = row["raise"]
    shares = [share for share in row["shares"] if share["percent"] >= LEAST][:NAMED] or row["shares"][:1]
    blamed = _joined([f"{share['name']} ({share['percent']:.0f} %)" for share in shares])
    by = f"{row['kind']} by {blamed}"
    if abs(row["baseline_score"] - row["score"]) < LEAST_CHANGE:
        by = f"its score changes by {abs(row['baseline_score'] - row['score']):.2f} only, across {BASELINE_SCORE}; {by}"
    if way is None:
        return f"{by}; raising layers with weights does not bring it back"
    pairs = zip(way["names"], way["precisions"], strict=True)
    raised = _joined([f"{name} to {precision}" for name, precision in pairs])
    verb = "brings" if len(way["names"]) == 1 else "together brings"
    return (
        f"{by}; raising {raised} {verb} it back (score {way['score']:.2f}) for {way['bit_operations_percent']:.1f} % of the "
        "baseline's bit operations"
    )


def _joined(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}" if texts else ""


def _print_layers(document: Mapping[str, Any], console: Console) -> None:
    layers = [row for row in document["layers"] if row["percent"] is not None]
    largest = max((row["percent"] for row in layers), default=0.0)
    rows = [
        [
            row["name"],
            row["precision"],
            f"{row['percent']:.0f} %",
            Share(max(0.0, row["percent"] / largest) if largest > 0 else 0.0),
            str(row["brings_back"] or ""),
            f"{row['bit_operations_percent']:.1f} %",
            *("-" if row["by_size"][size] is None else f"{row['by_size'][size]:.0f} %" for size in SIZES),
            *("-" if share is None else f"{share:.0f} %" for share in row["by_place"].values()),
        ]
        for row in sorted(layers, key=lambda row: -row["percent"])
    ]
    if rows:
        columns = ["layer", "precision", "share", "", "brings back", "raised costs", *SIZES, "at the edge", "inside"]
        title = f"layers by their share of what these {len(document['objects'])} objects lost"
        print_table(console, columns, rows, title, left=(0, 1, 3), optional=(5, 6, 7, 8, 9, 10))


def write_objects(explanation: Explanation, folder: Path) -> list[str]:
    """An image of each object, the baseline left and the configuration right, as folder/NNN-kind-class.jpg; their names.

    Raises: DataError when an image is gone or broken.
    """
    dataset = explanation.bench.dataset
    crops = []
    for explained in explanation.explained:
        one = explained.object
        x, y, width, height = one.box
        record, name = dataset.images[one.position], dataset.names[one.category]
        box = (x, y, x + width, y + height)
        crops.append(ObjectChange(one.kind, record.path, name, one.before, 0.0, box, size_of(one.area)))
    gallery = Gallery(dataset, *explanation.detections, image_loader({"protocol": explanation.bench.protocol}))
    return write_changes(gallery.changes(crops, len(crops), captions=True), folder)
