# SPDX-License-Identifier: MIT
"""Values of the page's template: texts, cards and tables of report data."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Mapping

import numpy as np
from markupsafe import Markup

from mpnet.config.measures import HELD_OUT, MEASURES, Measure, in_report_order, measure
from mpnet.evaluation.compare import verdict
from mpnet.evaluation.metrics import SIZES
from mpnet.messages import counted, number_text
from mpnet.report.data.differences import KINDS, few_classes_text
from mpnet.report.data.figure import Figure
from mpnet.report.data.report_data import Pick, ReportData, images_text
from mpnet.report.data.summary import amount, bounds, in_words
from mpnet.report.data.task_words import protocol_text, words_of
from mpnet.report.data.words import clean
from mpnet.report.html import svg


def format_number(value: float | None, digits: int = 2, signed: bool = False) -> str:
    """Return a number with fixed decimals and a true minus sign; an en dash for None and NaN."""
    return number_text(value, digits, signed).replace("-", "–" if value is None or math.isnan(value) else "−")


def with_minus_signs(text: str) -> str:
    """Return a text whose negative numbers have a true minus sign."""
    return re.sub(r"(?<=[\s(])-(?=\d)", "−", text)


def status_text(data: ReportData) -> str:
    """Say what the page is of: a finished sweep, runs, or how far a sweep is."""
    of_total = f" of {data.status.total:,}" if data.status.total else ""
    if data.status.state == "finished":
        return "finished" if data.kind == "sweep" else data.kind
    return f"{data.status.state}: {data.status.finished:,}{of_total}"


@dataclass(frozen=True)
class Tile:
    """A headline figure of the chosen configuration.

    change: from the baseline. note: its interval. means: what the measure is. tone: `good`, `bad` or `noise`.
    images: that it is of, in words.
    """

    label: str
    value: str
    change: str
    note: str
    means: str
    tone: str
    images: str


def list_tiles(data: ReportData) -> list[Tile]:
    """Return the chosen configuration's headline figures: on held-out images where there are any."""
    table = data.configurations
    if table.chosen is None:
        return []
    tiles = []
    for quantity in (quantity for quantity in MEASURES if quantity.headline):
        held_out = data.judged + quantity.name
        name = quantity.name if quantity.cost or held_out not in table.columns else held_out
        value, start = table.value(table.chosen, name), table.value(table.baseline, name)
        if not math.isfinite(value):
            continue
        interval = data.intervals.get(table.chosen, {}).get(name)
        outcome = verdict(quantity, interval) if interval is not None else None
        change, note = "", ""
        if table.baseline != table.chosen and math.isfinite(start):
            if quantity.cost and start > 0:
                change = f"{value / start:.0%} of baseline"
            elif quantity.kind != "agreement":
                change = format_number(value - start, quantity.digits, True)
        if interval is not None:
            note = f"95 %: {with_all_minus_signs(bounds(interval, None if quantity.judged else quantity.itself))}" + (
                ", within noise" if outcome == "noise" and interval.tells else ""
            )
        tone = {"loss": "bad", "gain": "good"}.get(outcome or "", "noise")
        tiles.append(Tile(quantity.label, amount(name, value), change, note, quantity.means, tone, data.images_of(name)))
    return tiles


@dataclass(frozen=True)
class PickCard:
    """A configuration that the sweep picked, by one rule or several.

    pick:   the first pick of it. names, rules: of all picks. words: its precision string in words.
    label:  of the measure that its losses are of. losses: (difference, interval, images), each a text.
    saves:  texts. again: how often it would be picked again, percent; None where nobody asked.
    """

    pick: Pick
    names: str
    rules: str
    words: str
    label: str
    losses: tuple[tuple[str, str, str], ...]
    saves: tuple[str, ...]
    again: float | None


def pick_cards(data: ReportData) -> list[PickCard]:
    """Return the picks, each with its loss, what it saves and the command that exports it."""
    headline = [quantity.name for quantity in MEASURES if quantity.headline and quantity.cost]
    cards: dict[tuple[str, str], PickCard] = {}
    for pick in data.picks:
        card = cards.get((pick.key, pick.options))
        if card is not None:  # one configuration, one card
            names, rules = f"{card.names}, {pick.name}", f"{card.rules}; {pick.name}: {pick.rule}"
            cards[pick.key, pick.options] = replace(card, names=names, rules=rules)
            continue
        losses = tuple(
            (format_number(i.difference, 2, True), f"({with_all_minus_signs(bounds(i))})", images)
            for images, i in list(pick.losses.items())[:1]
        )
        saves = tuple(f"{format_number(pick.saves[n], 1)} % of {measure(n).label}" for n in headline if n in pick.saves)
        label = measure(pick.judged or data.task.quality).label
        again = data.stability.picks.get(pick.name)
        cards[pick.key, pick.options] = PickCard(
            pick, pick.name, pick.rule, in_words(data, pick.key), label, losses, saves, again
        )
    return list(cards.values())


def with_all_minus_signs(text: str) -> str:
    """Return a text whose hyphens are minus signs."""
    return text.replace("-", "−")


def list_explained_measures(data: ReportData) -> list[Measure]:
    """Return every measure of the page, for an explanation of terms."""
    names = {name.removeprefix(HELD_OUT) for name in data.configurations.columns}
    return [quantity for quantity in in_report_order() if quantity.name in names and quantity.means]


def confusion_table(data: ReportData) -> dict[str, object] | None:
    """Return the confusion matrices without classes that neither occur nor are found; None where there are none."""
    confusion = data.confusion
    if confusion is None:
        return None
    counts = confusion.baseline + confusion.chosen
    occurring = np.flatnonzero(counts.sum(axis=0) + counts.sum(axis=1))
    rows = [
        {
            "name": confusion.names[r],
            "cells": [
                _cell(int(confusion.baseline[r, c]), int(confusion.chosen[r, c]), int(confusion.chosen[r].sum()), bool(r == c))
                for c in occurring
            ],
        }
        for r in occurring
    ]
    return {
        "columns": [confusion.names[c] for c in occurring],
        "rows": rows,
        "left_out": len(confusion.names) - len(occurring),
        "nothing": words_of(data.task).nothing,
    }


def _cell(baseline: int, chosen: int, total: int, is_diagonal: bool) -> dict[str, object]:
    share = 0.0 if not total else chosen / total
    return {
        "before": baseline,
        "after": chosen,
        "change": "" if baseline == chosen else f"{chosen - baseline:+d}".replace("-", "−"),
        "tone": "" if baseline == chosen else "good" if (chosen > baseline) == is_diagonal else "bad",
        "shade": "" if not chosen else f"{'good' if is_diagonal else 'bad'}-{min(4, 1 + int(4 * share))}",
    }


def list_filters(data: ReportData) -> dict[str, list[str]]:
    """Return what lost and gained things can be filtered by: kinds, classes and, of objects, sizes."""
    rows = [change.columns() for change in data.changes]
    choices = {name: {str(row.get(name) or "") for row in rows} - {""} for name in ("kind", "class", "size")}
    order = {value: number for values in (KINDS, SIZES) for number, value in enumerate(values)}
    return {
        name: sorted(values, key=lambda value: (order.get(value, 0), value))
        for name, values in choices.items()
        if len(values) > 1
    }


def list_sections(data: ReportData, figures_by_name: Mapping[str, Figure]) -> list[tuple[str, str]]:
    """Return id and heading of each section that the page has."""
    sections = [
        ("choice", "Front" if "front" in figures_by_name else "Configuration", True),
        ("classes", "Classes", bool(data.classes)),
        ("threshold", "In use", data.operating_point is not None),
        ("pictures", "Lost and gained", bool(data.changes or data.worst)),
        ("stability", "Other images", any(name.startswith("stability-") for name in figures_by_name)),
        ("conditions", "Conditions", data.conditions is not None),
        (
            "sensitivity",
            "Sensitivity",
            any(n in ("heat", "layer-noise") or n.startswith("sensitivity") for n in figures_by_name),
        ),
        ("error", "Error", bool(data.errors)),
        ("layers", "Layers", bool(data.layers)),
        ("configurations", "Table", len(data.configurations) > 1),
        ("protocol", "Protocol", True),
    ]
    return [(name, label) for name, label, is_present in sections if is_present]


def list_axes(data: ReportData, cost: bool) -> list[Measure]:
    """Return the measures that an axis of the front can show. cost: whether those that are costs."""
    return [
        quantity
        for quantity in map(measure, data.configurations.columns)
        if quantity.cost == cost and np.isfinite(data.configurations.columns[quantity.name]).any()
    ]


def draw_histograms(data: ReportData, figures_by_name: Mapping[str, Figure]) -> list[dict[str, object]]:
    """Draw the values that enter each layer, with the layer's name and precision."""
    return [
        {
            "svg": Markup(svg.histogram(figures_by_name[f"histogram-{e.index}"], palette=svg.PAGE)),
            "name": e.name,
            "precision": e.precision,
            "figure": f"histogram-{e.index}",
        }
        for e in data.errors
        if f"histogram-{e.index}" in figures_by_name
    ]


def latency_text(data: ReportData) -> str:
    """Say where the times of layers were taken, and whether they can be believed; '' without times."""
    isa, threads = data.latency.get("isa"), data.latency.get("threads")
    used_threads = counted(threads if isinstance(threads, int) else 0, "thread")
    doubt = f" They are unreliable ({data.doubt}); a report on a quiet machine takes them again." if data.doubt else ""
    return f"Times are medians on this machine: ISA {isa}, {used_threads}.{doubt}" if isa else ""


def class_verdict(data: ReportData) -> str:
    """Say how many classes change beyond noise, and how many would by chance; '' where no class has an interval."""
    few = [c for c in data.classes if c.is_few]
    classes = [c for c in data.classes if c.interval and not c.is_few]
    real = sorted(
        (c for c in classes if c.interval and not c.interval.noise), key=lambda c: c.interval.difference if c.interval else 0
    )
    few_text = few_classes_text([(c.name, c.truths) for c in few], data.task.thing)
    if not classes:
        return few_text
    images = f"On {images_text('all', data.images)} " if data.images else ""
    left_out = (len(data.confusion.names) - bool(words_of(data.task).nothing) if data.confusion else 0) - len(data.classes)
    others_text = f" {left_out} more have no {data.task.thing} in these images and are not listed." if left_out > 0 else ""
    others_text += f" {few_text}" if few_text else ""
    count_text = f"{len(classes)} classes" + (" that have an interval" if len(classes) + len(few) < len(data.classes) else "")
    if not real:
        return f"{images}{'n' if images else 'N'}one of {count_text} changes beyond noise.{others_text}"
    names = ", ".join(clean(c.name) for c in real[:5]) + (f" and {len(real) - 5} more" if len(real) > 5 else "")
    by_chance = f"; with {len(classes)} classes about {max(1, round(len(classes) * 0.05))} would do so by chance alone"
    return f"{images}{len(real)} of {count_text} change beyond noise ({names}){by_chance}.{others_text}"


def flatten_pairs(document: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    """Return the values of a nested document as texts, each after its keys joined by dots."""
    pairs: list[tuple[str, str]] = []
    for key, value in document.items():
        if isinstance(value, Mapping):
            pairs += flatten_pairs(value, f"{prefix}{key}.")
        elif value is not None:
            text = " x ".join(map(str, value)) if isinstance(value, (list, tuple)) else protocol_text(value)
            pairs.append((f"{prefix}{key}", text))
    return pairs
