# SPDX-License-Identifier: MIT
"""What a sweep shows about losses, and what more images would show, for a terminal."""

from __future__ import annotations

from typing import Any, Mapping

from rich.console import Console

from mpnet.config.measures import measure
from mpnet.evaluation.noninferiority import POOLED
from mpnet.messages import counted
from mpnet.model.plan_key import short_key
from mpnet.report.data.row_words import describe_configuration, row_words
from mpnet.report.text.terminal import print_table
from mpnet.sweep.choose.margins import loss_label

LAYERS_NAMED = 8
"""Of those that keep their precision at the cost of a pick."""


def print_safety(document: Mapping[str, Any], console: Console) -> None:
    """Print what was shown about losses, and where the user named a margin, the state of each configuration."""
    safety, picks = document.get("safety"), document.get("picks") or {}
    if not safety:  # of a sweep from before there was one
        return
    if safety["asked"] and safety["tested"]:
        rows = safety["tested"]
        [(name, points)] = safety["margin"].items()
        cells: list[list[object]] = [
            [
                describe_configuration(document, row),
                row["state"],
                "{loss:.2f} ({least:.2f} to {most:.2f})".format(**row["losses"][name]) if name in row["losses"] else "",
                "" if row["more_images"] is None else f"about {row['more_images']:,}",
            ]
            for row in rows
        ]
        headings = ["precision", f"at most {points:g} lost", f"{measure(name).label} lost", "images to add"]
        images = counted(safety["images"], "held-out image" if safety["held_out"] else "image")
        print_table(console, headings, cells, f"From accurate to cheap, on {images}", left=(0, 1))
    console.print(f"safe: {safety['why']}." if "safe" in picks else f"No configuration is called safe: {safety['why']}.")
    _print_twice(document, safety, console)
    layers = (document.get("stability") or {}).get("layers") or {}
    names = {
        index: name for row in document.get("layers") or () for index, name in zip(row["layers"], row["names"], strict=True)
    }
    for name in (name for name in ("safe", "balanced") if layers.get(name)):
        shares = sorted(layers[name], key=lambda row: -float(row["percent"]))[:LAYERS_NAMED]
        layer_list = ", ".join(f"{names.get(row['layer'], row['layer'])} ({row['percent']:.0f} %)" for row in shares)
        console.print(
            f"Layers that keep their precision at the cost of {name}, and in how many of the resampled image sets: {layer_list}"
        )
        break


def _print_twice(document: Mapping[str, Any], safety: Mapping[str, Any], console: Console) -> None:
    """Print what twice as many images to test on would bring, if losses stay what they are."""
    twice = safety.get("twice")
    if not twice or not twice["half_widths"]:
        return
    half_widths = twice["half_widths"].items()
    widths = ", ".join(
        f"{loss_label(name)} to {half_width['twice']:.2f} points instead of {half_width['now']:.2f}"
        for name, half_width in half_widths
    )
    safe_row = {"precision": twice["safe"] or "", "options": ""}
    outcome = (
        "safe would be the same"
        if twice["safe"] == safety["safe"]
        else f"{describe_configuration(document, safe_row)} would be safe"
    )
    console.print(
        f"Twice as many images would tell losses of {widths}; {outcome if twice['safe'] else 'nothing would be safe yet'}."
    )


def print_forecast(document: Mapping[str, Any], console: Console) -> None:
    """Print how wide intervals will be: a row per configuration and measure."""
    rows: list[list[object]] = []
    for row in document["configurations"]:
        for name, loss in row["losses"].items():
            enough = loss["images_to_tell"]
            widths = [f"{width:.2f}" for width in loss["half_widths"]]
            rows.append(
                [
                    row_words(row),
                    short_key(row["precision"]),
                    f"{loss_label(name)} {document['margin'][name.removesuffix(POOLED)]:g}",
                    f"{loss['loss']:.2f}",
                    *widths,
                    "more than there are" if enough is None else f"{enough:,}",
                ]
            )
    for failure in document["failed"]:
        console.print(f"{failure['words']} ({short_key(failure['precision'])}) has no figures: {failure['reason']}")
    if not rows:
        if not document["failed"]:
            console.print("too few images to say how wide intervals will be; name more, for example with --unlabelled")
        return
    testing = document["testing"]
    held_out = "held-out images" if document["held_out"] else "images, none of which is held out"
    title = (
        f"A forecast from {document['images']} images: losses would be known to so many points either way with the {testing} "
        f"{held_out} of this sweep ({document['labelled']} labelled), and with more"
    )
    counts = [f"{factor * testing:,} images" for factor in document["factors"]]
    headings = ["precision", "key", "margin", "loss", *counts, "images that tell"]
    print_table(console, headings, rows, title, left=(0, 1, 2), fold=(0, 2))
