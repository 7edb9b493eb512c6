# SPDX-License-Identifier: MIT
"""ReportData to one self-contained HTML file that asks nothing of any network."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from typing import Any, Mapping, Sequence

import jinja2
import numpy as np
from markupsafe import Markup

from mpnet.config.measures import HELD_OUT, MEASURES, in_report_order, measure
from mpnet.evaluation.compare import Interval, verdict
from mpnet.evaluation.metrics import SIZES
from mpnet.formats.documents.json_text import finite
from mpnet.messages import counted
from mpnet.model.plan_key import SHORT, short_key
from mpnet.model.precision import BY_CODE, PRECISIONS
from mpnet.report.colours import style_sheet
from mpnet.report.data import figures, operating_point
from mpnet.report.data.differences import KINDS, ClassRow
from mpnet.report.data.figures import Figure
from mpnet.report.data.report_data import ReportData, images_text
from mpnet.report.data.summary import amount, bounds, in_words, sentences
from mpnet.report.data.task_words import protocol_text, words_of
from mpnet.report.data.words import clean, number_text
from mpnet.report.html import svg

CLOUD_DRAWN = 400
"""Most dominated configurations in the front's first image, before the page's program draws all."""


def render(data: ReportData) -> str:
    """The page. Names, notes and file names in `data` are shown as text, whatever they contain."""
    script = _scripts()
    shown = {figure.name: figure for figure in figures.all_figures(data)}
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters.update(
        num=_number,
        jpeg=lambda data: f"data:image/jpeg;base64,{_base64(data)}",
        counted=counted,
        product=lambda shape: int(np.prod(shape)),
        short=short_key,
    )
    environment.globals.update(chip=_chip, images_text=images_text, whisker=_Whisker(data.classes), tone=_tone, measure=measure)
    # The policy lets exactly this script run, so a name that slipped through as markup could still do nothing.
    policy = (
        f"default-src 'none'; script-src 'sha256-{_base64(hashlib.sha256(script.encode()).digest())}'; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    drawn = [c for c in data.changes if c.jpeg is not None]
    return environment.from_string(_asset("templates", "report.html.j2")).render(
        data=data,
        table=data.configurations,
        policy=policy,
        css=Markup(_asset("static", "report.css") + style_sheet()),
        script=Markup(script),
        payload=Markup(embedded_json(payload(data, shown))),
        sentences=[_minus(sentence) for sentence in sentences(data)],
        status_text=_status(data),
        tiles=_tiles(data),
        picks=_picks(data),
        chosen_words=in_words(data, data.configurations.keys[data.configurations.chosen or 0]),
        sections=_sections(data, shown),
        charts={name: _chart(figure) for name, figure in shown.items()},
        figures=shown,
        stability_names=[name for name in shown if name.startswith("stability-")],
        sensitivity_names=[name for name in shown if name.startswith("sensitivity-")],
        all_but=any(
            series.name.startswith(figures.ALL_BUT)
            for name, figure in shown.items()
            if name.startswith("sensitivity-")
            for series in figure.series
        ),
        objectives=_axes(data, False),
        costs=_axes(data, True),
        means=_means(data),
        per_class=[measure(name) for name in data.task.per_class],
        matched=words_of(data.task).matched,
        precisions=_precisions(data),
        histograms=_histograms(data, shown),
        total_macs=sum(layer.macs for layer in data.layers),
        latency_text=_latency(data),
        class_verdict=_class_verdict(data),
        confusion=_confusion(data),
        point=data.operating_point,
        point_lines=[_minus(line) for line in operating_point.lines(data.operating_point or {})],
        crops=sorted(drawn, key=lambda c: c.order),
        changes=sorted(data.changes, key=lambda c: c.order),
        filters=_filters(data),
        **{kind: sum(change.kind == kind for change in data.changes) for kind in KINDS},
        documents=[
            ("Protocol", _pairs(data.protocol)),
            ("Digests", _pairs(data.digests)),
            ("Versions", _pairs(data.versions)),
            ("Latency", _pairs(data.latency)),
        ],
    )


def payload(data: ReportData, shown: Mapping[str, Figure]) -> dict[str, Any]:
    """What the page's program reads: the table of configurations in columns, numbers of figures, the .cfg in pieces."""
    table = data.configurations
    names = [m.name for m in in_report_order() if m.name in table.columns]
    names += [name for name in table.columns if name not in names]
    long = max(map(len, table.keys), default=0) > SHORT
    named = {table.baseline, table.chosen, *(pick.row for pick in data.picks), *np.flatnonzero(table.front).tolist()} - {None}
    return {
        "table": {
            "keys": list(table.keys),
            "short": [short_key(key) for key in table.keys] if long else None,
            "words": {row: in_words(data, table.keys[row]) for row in sorted(named)},
            "front": np.flatnonzero(table.front).tolist(),
            "baseline": table.baseline,
            "chosen": table.chosen,
            "objective": table.objective,
            "cost": table.cost,
            "columns": {name: _base64(table.columns[name].astype("<f8").tobytes()) for name in names},
        },
        "measures": {
            name: {
                "label": m.label,
                "unit": m.unit,
                "higher": m.higher,
                "cost": m.cost,
                "digits": m.digits,
                "judged": m.judged,
                "itself": m.itself,
                "means": m.means,
                "pictures": data.images_of(name),
            }
            for name in names
            for m in (measure(name),)
        },
        "shown": data.shown_as.capitalize(),
        "mark": data.shown_short,
        "hover": [m.name for m in MEASURES if m.headline and m.name in table.columns],
        "picks": [{"name": pick.name, "row": pick.row} for pick in data.picks if pick.row is not None],
        "precisions": {p.code: {"name": p.name, "base": p.base} for p in _precisions(data)},
        "layers": [{"index": layer.index, "name": layer.name, "position": layer.position} for layer in data.layers],
        "intervals": {
            row: {name: [i.difference, i.low, i.high] for name, i in by_name.items() if i.tells}
            for row, by_name in data.intervals.items()
        },
        # The front's numbers are the table's; a second copy would double the page.
        "figures": {name: {k: list(v) for k, v in figure.columns.items()} for name, figure in shown.items() if name != "front"},
        "cfg": None
        if data.cfg is None
        else {
            "file": data.cfg.file_name,
            "encoding": data.cfg.encoding,
            "parts": [[part if isinstance(part, str) else dict(part), position] for part, position in data.cfg.parts],
        },
    }


def _chart(figure: Figure) -> Markup:
    """A figure for the page, in colours that follow light and dark."""
    if figure.name == "front":
        series = tuple(
            replace(s, x=s.x[::step], y=s.y[::step]) if (step := -(-len(s.x) // CLOUD_DRAWN)) > 1 and s.colour == "muted" else s
            for s in figure.series
        )
        figure = replace(figure, series=series)
        return Markup(svg.draw(figure, 960, 440, svg.PAGE, titled=False))
    drawn = svg.draw(figure, 520, 300, svg.PAGE, titled=False)
    width = int(drawn.partition(' width="')[2].partition('"')[0])
    # Letters stay readable: what is wider than the screen scrolls.
    return Markup(f'<div style="min-width: {0.85 * width:.0f}px; max-width: {1.4 * width:.0f}px">{drawn}</div>')


def embedded_json(document: Any) -> str:
    """JSON that may stand inside a <script> element: no '<', '>' or '&', no NaN, no line separators of JavaScript."""
    text = json.dumps(finite(document), separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _asset(folder: str, name: str) -> str:
    return (resources.files("mpnet.report.html") / folder / name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _scripts() -> str:
    names = sorted(
        item.name for item in resources.files("mpnet.report.html").joinpath("static").iterdir() if item.name.endswith(".js")
    )
    return "\n".join(_asset("static", name) for name in names)


def _number(value: float | None, digits: int = 2, signed: bool = False) -> str:
    return number_text(value, digits, signed).replace("-", "–" if value is None or math.isnan(value) else "−")


def _minus(text: str) -> str:
    """Signs of negative numbers as typographers want them."""
    return re.sub(r"(?<=[\s(])-(?=\d)", "−", text)


def _chip(precision: str) -> Markup:
    known = PRECISIONS.get(precision)
    return Markup('<span class="chip {}">{}</span>').format(known.base if known else "", precision)


def _tone(of_class: ClassRow) -> str:
    if of_class.interval is None or of_class.interval.noise:
        return "noise"
    return "bad" if of_class.interval.difference < 0 else "good"


class _Whisker:
    """Draws intervals of all rows on one axis, so that they compare by eye."""

    def __init__(self, rows: Sequence[ClassRow]) -> None:
        ends = [abs(v) for row in rows if row.interval for v in (row.interval.low, row.interval.high)]
        self.largest = max(ends, default=1.0) or 1.0

    def __call__(self, interval: Interval) -> Markup:
        def x_of(value: float) -> float:
            return 60 + 56 * value / self.largest

        colour = "muted" if interval.noise else "bad" if interval.difference < 0 else "good"
        words = f"{_number(interval.low, 2, True)} to {_number(interval.high, 2, True)}"
        return Markup(
            '<svg width="120" height="14" viewBox="0 0 120 14" aria-hidden="true"><path d="M60 0V14" '
            'stroke="var(--line)"/><path d="M{:.1f} 7H{:.1f}" stroke="var(--{})" stroke-width="2"/><circle cx="{:.1f}" '
            'cy="7" r="3.4" fill="var(--{})"/></svg> <small>{}</small>'
        ).format(x_of(interval.low), x_of(interval.high), colour, x_of(interval.difference), colour, words)


def _status(data: ReportData) -> str:
    of = f" of {data.status.total:,}" if data.status.total else ""
    if data.status.state == "finished":
        return "finished" if data.kind == "sweep" else data.kind
    return f"{data.status.state}: {data.status.done:,}{of}"


def _tiles(data: ReportData) -> list[dict[str, str]]:
    """The chosen configuration's headline figures: on held-out images where there are any."""
    table = data.configurations
    if table.chosen is None:
        return []
    tiles = []
    for quantity in (quantity for quantity in MEASURES if quantity.headline):
        name = (
            quantity.name if quantity.cost or data.judged + quantity.name not in table.columns else data.judged + quantity.name
        )
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
                change = _number(value - start, quantity.digits, True)
        if interval is not None:
            note = f"95 %: {_minus_all(bounds(interval, None if quantity.judged else quantity.itself))}" + (
                ", within noise" if outcome == "noise" and interval.tells else ""
            )
        tiles.append(
            {
                "label": quantity.label,
                "value": amount(name, value),
                "change": change,
                "note": note,
                "means": quantity.means,
                "tone": {"loss": "bad", "gain": "good"}.get(outcome or "", "noise"),
                "on": data.images_of(name),
            }
        )
    return tiles


def _picks(data: ReportData) -> list[dict[str, Any]]:
    """What somebody could take, each with its loss, what it saves and the command that takes it away."""
    headline = [quantity.name for quantity in MEASURES if quantity.headline and quantity.cost]
    cards: dict[tuple[str, str], dict[str, Any]] = {}
    for pick in data.picks:
        same = cards.get((pick.key, pick.options))
        if same is not None:  # one configuration, one card
            same["names"] += f", {pick.name}"
            same["rules"] += f"; {pick.name}: {pick.rule}"
            continue
        losses = [
            (f"{_number(i.difference, 2, True)}", f"({_minus_all(bounds(i))})", words)
            for words, i in list(pick.losses.items())[:1]
        ]
        saves = [f"{_number(pick.saves[name], 1)} % of {measure(name).label}" for name in headline if name in pick.saves]
        cards[pick.key, pick.options] = {
            "pick": pick,
            "names": pick.name,
            "rules": pick.rule,
            "words": in_words(data, pick.key),
            "label": measure(pick.judged or data.task.quality).label,
            "losses": losses,
            "saves": saves,
            "again": (data.stability.get("picks") or {}).get(pick.name),
        }
    return list(cards.values())


def _minus_all(text: str) -> str:
    return text.replace("-", "−")


def _means(data: ReportData) -> list[Any]:
    """Every measure of the page, for an explanation of terms."""
    names = {name.removeprefix(HELD_OUT) for name in data.configurations.columns}
    return [quantity for quantity in in_report_order() if quantity.name in names and quantity.means]


def _confusion(data: ReportData) -> dict[str, Any] | None:
    """The confusion matrices without classes that neither occur nor are found, largest count for shades."""
    confusion = data.confusion
    if confusion is None:
        return None
    both = confusion.baseline + confusion.chosen
    used = np.flatnonzero(both.sum(axis=0) + both.sum(axis=1))
    rows = [
        {
            "name": confusion.names[r],
            "cells": [
                _cell(int(confusion.baseline[r, c]), int(confusion.chosen[r, c]), int(confusion.chosen[r].sum()), bool(r == c))
                for c in used
            ],
        }
        for r in used
    ]
    return {
        "columns": [confusion.names[c] for c in used],
        "rows": rows,
        "left_out": len(confusion.names) - len(used),
        "nothing": words_of(data.task).nothing,
    }


def _cell(before: int, after: int, total: int, right: bool) -> dict[str, Any]:
    share = 0.0 if not total else after / total
    return {
        "before": before,
        "after": after,
        "change": "" if before == after else f"{after - before:+d}".replace("-", "−"),
        "tone": "" if before == after else "good" if (after > before) == right else "bad",
        "shade": "" if not after else f"{'good' if right else 'bad'}-{min(4, 1 + int(4 * share))}",
    }


def _filters(data: ReportData) -> dict[str, list[str]]:
    """What lost and gained things can be filtered by: kinds, classes and, of objects, sizes."""
    rows = [change.columns() for change in data.changes]
    choices = {name: {str(row.get(name) or "") for row in rows} - {""} for name in ("kind", "class", "size")}
    order = {value: number for values in (KINDS, SIZES) for number, value in enumerate(values)}
    return {
        name: sorted(values, key=lambda value: (order.get(value, 0), value))
        for name, values in choices.items()
        if len(values) > 1
    }


def _sections(data: ReportData, shown: Mapping[str, Figure]) -> list[tuple[str, str]]:
    wanted = [
        ("choice", "Front" if "front" in shown else "Configuration", True),
        ("classes", "Classes", bool(data.classes)),
        ("threshold", "In use", data.operating_point is not None),
        ("pictures", "Lost and gained", bool(data.changes or data.worst)),
        ("stability", "Other images", any(name.startswith("stability-") for name in shown)),
        ("conditions", "Conditions", data.conditions is not None),
        ("sensitivity", "Sensitivity", "heat" in shown or any(n.startswith("sensitivity") for n in shown)),
        ("error", "Error", bool(data.errors)),
        ("layers", "Layers", bool(data.layers)),
        ("configurations", "Table", len(data.configurations) > 1),
        ("protocol", "Protocol", True),
    ]
    return [(name, label) for name, label, there in wanted if there]


def _axes(data: ReportData, cost: bool) -> list[Any]:
    return [
        quantity
        for quantity in map(measure, data.configurations.columns)
        if quantity.cost == cost and np.isfinite(data.configurations.columns[quantity.name]).any()
    ]


def _precisions(data: ReportData) -> list[Any]:
    used = {code for key in data.configurations.keys for code in key}
    return [p for code, p in BY_CODE.items() if code in used]


def _histograms(data: ReportData, shown: Mapping[str, Figure]) -> list[dict[str, Any]]:
    return [
        {
            "svg": Markup(svg.histogram(shown[f"histogram-{e.index}"], palette=svg.PAGE)),
            "name": e.name,
            "precision": e.precision,
            "figure": f"histogram-{e.index}",
        }
        for e in data.errors
        if f"histogram-{e.index}" in shown
    ]


def _latency(data: ReportData) -> str:
    isa, threads = data.latency.get("isa"), data.latency.get("threads")
    doubt = f" They are unreliable ({data.doubt}); a report on a quiet machine takes them again." if data.doubt else ""
    return f"Times are medians on this machine: ISA {isa}, {counted(int(threads or 0), 'thread')}.{doubt}" if isa else ""


def _class_verdict(data: ReportData) -> str:
    classes = [c for c in data.classes if c.interval]
    real = sorted(
        (c for c in classes if c.interval and not c.interval.noise), key=lambda c: c.interval.difference if c.interval else 0
    )
    if not classes:
        return ""
    on = f"On {images_text('all', data.images)} " if data.images else ""
    left_out = (len(data.confusion.names) - bool(words_of(data.task).nothing) if data.confusion else 0) - len(data.classes)
    rest = f" {left_out} more have no {data.task.thing} in these images and are not listed." if left_out > 0 else ""
    of = f"{len(classes)} classes" + (" that have an interval" if len(classes) < len(data.classes) else "")
    if not real:
        return f"{on}{'n' if on else 'N'}one of {of} changes beyond noise.{rest}"
    names = ", ".join(clean(c.name) for c in real[:5]) + (f" and {len(real) - 5} more" if len(real) > 5 else "")
    by_chance = f"; with {len(classes)} classes about {max(1, round(len(classes) * 0.05))} would do so by chance alone"
    return f"{on}{len(real)} of {of} change beyond noise ({names}){by_chance}.{rest}"


def _pairs(document: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    for key, value in document.items():
        if isinstance(value, Mapping):
            out += _pairs(value, f"{prefix}{key}.")
        elif value is not None:
            text = " x ".join(map(str, value)) if isinstance(value, (list, tuple)) else protocol_text(value)
            out.append((f"{prefix}{key}", text))
    return out
