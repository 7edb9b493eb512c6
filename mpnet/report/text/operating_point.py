# SPDX-License-Identifier: MIT
"""Errors of a run at one score threshold, for the terminal; `evaluation.operating_point` says what the document holds."""

from __future__ import annotations

from typing import Mapping

from rich.console import Console
from rich.text import Text

from mpnet.evaluation.operating_point import MEASURES, ClassErrors, OperatingErrors
from mpnet.messages import number_text
from mpnet.report.data.differences import is_few
from mpnet.report.data.operating_point import MEASURE_LABELS, kind_label, operating_sentences
from mpnet.report.data.words import clean
from mpnet.report.text.terminal import print_table

CLASSES_SHOWN = 8


def print_operating_point(point: OperatingErrors, console: Console, *, name: str = "this run", details: bool = False) -> None:
    """Print objects missed, false alarms, recall and the share of correct detections; how scores shift; kinds of errors.

    name: of the run. details: whether classes are printed as well.
    """
    pair = "run" in point
    if "baseline" in point:
        _table(point, console, name, pair)
    for line in operating_sentences(point):
        console.print(line)
    if "errors" in point:
        _errors(point, console, name, pair)
    if details and pair:
        _classes(point, console, name)


def _table(point: OperatingErrors, console: Console, name: str, pair: bool) -> None:
    rows: list[list[object]] = []
    for measure in MEASURES:
        row: list[object] = [MEASURE_LABELS[measure], _value(point["baseline"][measure])]
        if pair:
            row += [_value(point["run"][measure]), _difference(measure, point["differences"].get(measure))]
        rows.append(row)
    names = ["baseline", clean(name), "difference, 95 %"] if pair else [clean(name)]
    title = (
        f"at score {point['score']:.3f} ({point['chosen_by']}), IoU 0.5: {point['objects']} objects, {point['images']} images"
    )
    print_table(console, ["", *names], rows, title)


def _errors(point: OperatingErrors, console: Console, name: str, pair: bool) -> None:
    sides = ("baseline", "run") if pair else ("baseline",)
    rows = [
        [
            kind_label(kind),
            *[side["count"] for side in (of_kind[n] for n in sides)],
            *[f"{of_kind[n]['AP50_back']:.2f}" for n in sides],
        ]
        for kind, of_kind in point["errors"].items()
    ]
    names = ["baseline", clean(name)] if pair else [clean(name)]
    columns = ["", *names, *(f"AP50 back, {n}" for n in names)]
    print_table(
        console, columns, rows, f"kinds of errors at score {point['score']:.3f}, and the AP50 that repairing each gives back"
    )


def _classes(point: OperatingErrors, console: Console, name: str) -> None:
    def weight(row: ClassErrors) -> float:
        return sum(abs((row["run"][m] or 0) - (row["baseline"][m] or 0)) for m in ("missed", "false_alarms"))

    changed_rows = sorted(
        (row for row in point["per_class"] if weight(row)), key=lambda row: (is_few(row["truths"]), -weight(row))
    )
    rows = [
        [
            row["name"],
            f"{row['truths']}{', few' if is_few(row['truths']) else ''}",
            *[f"{row['baseline'][m]} to {row['run'][m]}" for m in ("missed", "false_alarms")],
            _difference("recall", row["differences"]["recall"]),
        ]
        for row in changed_rows
    ]
    if rows:
        columns = ["class", "truths", "missed", "false alarms", "recall, 95 %"]
        title = f"classes at score {point['score']:.3f}, baseline to {clean(name)}, largest changes first"
        print_table(console, columns, rows, title, limit=CLASSES_SHOWN, fold=(0,))


def _value(value: float | int | None) -> str:
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.1f}"


def _difference(measure: str, interval: Mapping[str, float] | None) -> Text:
    """Return a difference with its interval, coloured where zero is outside."""
    if interval is None:
        return Text("-")
    text = Text(number_text(interval["difference"], 1, True))
    bounds = f" [{number_text(interval['low'], 1, True)},{number_text(interval['high'], 1, True)}]"
    noise = interval["low"] <= 0 <= interval["high"]
    worse = (interval["difference"] > 0) == (measure in ("missed", "false_alarms"))
    text.append(bounds + (" noise" if noise else ""), style="dim" if noise else "red" if worse else "green")
    return text
