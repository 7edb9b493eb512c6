# SPDX-License-Identifier: MIT
"""The losses that a sweep shows, and what more images would show, for a terminal."""

from __future__ import annotations

from rich.console import Console

from mpnet.config.measures import measure
from mpnet.evaluation.noninferiority import POOLED
from mpnet.messages import counted, number_text
from mpnet.model.plan_key import short_key
from mpnet.report.data.row_words import describe_configuration, row_words
from mpnet.report.text.terminal import print_table
from mpnet.sweep.choose.margins import budget_text, loss_label
from mpnet.sweep.forecast import Forecast
from mpnet.sweep.result import LossBounds, Safety, SafetyWithTwice, SweepResult

LAYERS_NAMED = 8
"""Of those that keep their precision at the cost of a pick."""


def print_safety(result: SweepResult, console: Console) -> None:
    """Print what was shown about losses, and where the user named a margin, the state of each configuration."""
    safety = result.safety
    if safety is None:  # of a sweep from before there was one
        return
    if safety.is_asked and safety.tested:
        _print_tested(result, safety, console)
    console.print(f"safe: {safety.why}." if "safe" in result.picks else f"Nothing is called safe: {safety.why}.")
    if safety.twice is not None and safety.twice.half_widths:
        _print_twice(result, safety, safety.twice, console)
    _print_stable_layers(result, console)


def _print_tested(result: SweepResult, safety: Safety, console: Console) -> None:
    """Print the configurations that were tested against the margin, from accurate to cheap."""
    cells = [
        [
            describe_configuration(result, row.precision, row.options),
            row.state,
            *(_loss_text(row.losses.get(name)) for name in safety.margin),
            "" if row.more_images is None else f"about {row.more_images:,}",
        ]
        for row in safety.tested
    ]
    budget = f"at most {budget_text(safety.margin)} lost"
    headings = ["precision", budget, *(f"{measure(name).label} lost" for name in safety.margin), "images to add"]
    images = counted(safety.images, "held-out image" if safety.is_held_out else "image")
    print_table(console, headings, cells, f"From accurate to cheap, on {images}", left=(0, 1))


def _loss_text(loss: LossBounds | None) -> str:
    if loss is None:
        return ""
    return f"{number_text(loss.loss)} ({number_text(loss.least)} to {number_text(loss.most)})"


def _print_stable_layers(result: SweepResult, console: Console) -> None:
    """Print for the safe pick, else the balanced one, the layers that keep their precision on other images."""
    pick = next((name for name in ("safe", "balanced") if result.stability.layers.get(name)), None)
    if pick is None:
        return
    names = {index: name for row in result.layers for index, name in zip(row.layers, row.names, strict=True)}
    shares = sorted(result.stability.layers[pick], key=lambda row: -row.percent)[:LAYERS_NAMED]
    layer_list = ", ".join(f"{names.get(row.layer, row.layer)} ({row.percent:.0f} %)" for row in shares)
    console.print(
        f"Layers that keep their precision at the cost of {pick}, and in how many of the resampled image sets: {layer_list}"
    )


def _print_twice(result: SweepResult, safety: Safety, twice: SafetyWithTwice, console: Console) -> None:
    """Print what twice as many images to test on would bring, if losses stay what they are."""
    widths = ", ".join(
        f"{loss_label(name)} to {half_width.twice:.2f} points instead of {half_width.now:.2f}"
        for name, half_width in twice.half_widths.items()
    )
    if not twice.safe:
        outcome = "nothing would be safe yet"
    elif twice.safe == safety.safe:
        outcome = "safe would be the same"
    else:
        outcome = f"{describe_configuration(result, twice.safe, '')} would be safe"
    console.print(f"Twice as many images would tell losses of {widths}; {outcome}.")


def print_forecast(forecast: Forecast, console: Console) -> None:
    """Print how wide intervals will be: a row per configuration and measure."""
    rows: list[list[object]] = []
    for row in forecast.configurations:
        for name, loss in row.losses.items():
            enough = loss.images_to_tell
            widths = [f"{width:.2f}" for width in loss.half_widths]
            rows.append(
                [
                    row_words(row.precision, row.words),
                    short_key(row.precision),
                    f"{loss_label(name)} {forecast.margin[name.removesuffix(POOLED)]:g}",
                    number_text(loss.loss),
                    *widths,
                    "more than there are" if enough is None else f"{enough:,}",
                ]
            )
    for failure in forecast.failed:
        console.print(f"{failure.words} ({short_key(failure.precision)}) has no figures: {failure.reason}")
    if not rows:
        if not forecast.failed:
            console.print("too few images to say how wide intervals will be; name more, for example with --unlabelled")
        return
    testing = forecast.testing
    held_out = "held-out images" if forecast.is_held_out else "images, none of which is held out"
    title = (
        f"A forecast from {forecast.images} images: losses would be known to so many points either way with the {testing} "
        f"{held_out} of this sweep ({forecast.labelled} labelled), and with more"
    )
    counts = [f"{factor * testing:,} images" for factor in forecast.factors]
    headings = ["precision", "key", "margin", "loss", *counts, "images that tell"]
    print_table(console, headings, rows, title, left=(0, 1, 2), fold=(0, 2))
