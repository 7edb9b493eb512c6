"""ReportData to one self-contained HTML file that asks nothing of any network."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from functools import lru_cache
from importlib import resources
from typing import Any, Mapping, Sequence

import jinja2
import numpy as np
from markupsafe import Markup

from mpnet.errors import StoreError
from mpnet.evaluation.compare import Interval
from mpnet.formats.json_text import finite
from mpnet.report import figures, svg
from mpnet.report.figures import Figure
from mpnet.report.model import ClassRow, ReportData
from mpnet.report.summary import amount, sentences
from mpnet.report.task import view_of
from mpnet.report.terminal import clean, number_text
from mpnet.spec.measures import MEASURES, in_report_order, measure
from mpnet.spec.precision import BY_CODE, PRECISIONS

CROPS_SHOWN = 24
"""Most lost or gained objects with a picture on the page; the data files list all."""


def render(data: ReportData) -> str:
    """The page. Names, notes and file names in `data` are shown as text, whatever they contain."""
    script = _scripts()
    plotly = _plotly()
    shown = {figure.name: figure for figure in figures.all_figures(data)}
    needs_plotly = any(f.kind != "histogram" for f in shown.values())
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True,
                                     undefined=jinja2.StrictUndefined)
    environment.filters.update(num=_number, jpeg=lambda data: f"data:image/jpeg;base64,{_base64(data)}",
                               product=lambda shape: int(np.prod(shape)))
    environment.globals.update(chip=_chip, whisker=_Whisker(data.classes), tone=_tone)
    # The policy lets exactly these scripts run, so a name that slipped through as markup could still do nothing.
    hashes = " ".join(f"'sha256-{_base64(hashlib.sha256(text.encode()).digest())}'" for text in (script, plotly))
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; " \
             "base-uri 'none'; form-action 'none'"
    changes = sorted(data.changes, key=lambda c: -c.score)
    with_picture = [c for c in changes if c.jpeg is not None] or changes
    return environment.from_string(_asset("templates", "report.html.j2")).render(
        data=data, table=data.configurations, policy=policy, css=Markup(_asset("static", "report.css")),
        script=Markup(script), plotly=Markup(plotly if needs_plotly else ""),
        payload=Markup(embedded_json(payload(data, shown))),
        sentences=[_minus(sentence) for sentence in sentences(data)], status_text=_status(data), tiles=_tiles(data),
        sections=_sections(data, shown),
        figure_names=shown, sensitivity_names=[name for name in shown if name.startswith("sensitivity-")],
        objectives=_axes(data, False), costs=_axes(data, True),
        per_class=[measure(name) for name in data.task.per_class], matched=view_of(data.task).matched,
        precisions=_precisions(data), histograms=_histograms(data, shown),
        total_macs=sum(layer.macs for layer in data.layers), latency_text=_latency(data),
        class_verdict=_class_verdict(data), changes_shown=with_picture[:CROPS_SHOWN],
        changes_hidden=max(len(changes) - CROPS_SHOWN, 0),
        lost=sum(c.kind == "lost" for c in changes), gained=sum(c.kind == "gained" for c in changes),
        documents=[("Protocol", _pairs(data.protocol)), ("Digests", _pairs(data.digests)),
                   ("Versions", _pairs(data.versions)), ("Latency", _pairs(data.latency))],
    )


def payload(data: ReportData, shown: Mapping[str, Figure]) -> dict[str, Any]:
    """What the page's program reads: the table of configurations in columns, figures, and the .cfg in pieces."""
    table = data.configurations
    names = [m.name for m in in_report_order() if m.name in table.columns]
    names += [name for name in table.columns if name not in names]
    return {
        "table": {
            "keys": list(table.keys), "front": np.flatnonzero(table.front).tolist(), "baseline": table.baseline,
            "chosen": table.chosen, "objective": table.objective, "cost": table.cost,
            "columns": {name: _base64(table.columns[name].astype("<f8").tobytes()) for name in names},
        },
        "measures": {name: {"label": m.label, "unit": m.unit, "higher": m.higher, "cost": m.cost, "digits": m.digits}
                     for name in names for m in (measure(name),)},
        "hover": [m.name for m in MEASURES if m.headline and m.name in table.columns],
        "precisions": {p.code: {"name": p.name, "base": p.base} for p in _precisions(data)},
        "layers": [{"index": layer.index, "name": layer.name, "position": layer.position} for layer in data.layers],
        "intervals": {row: {name: [i.difference, i.low, i.high] for name, i in found.items()}
                      for row, found in data.intervals.items()},
        # The front's numbers are the table's; a second copy would double the page.
        "figures": {name: _figure(figure) for name, figure in shown.items() if name != "front"},
        "cfg": None if data.cfg is None else {
            "file": data.cfg.file_name, "encoding": data.cfg.encoding,
            "parts": [[part if isinstance(part, str) else dict(part), place] for part, place in data.cfg.parts],
        },
    }


def embedded_json(document: Any) -> str:
    """JSON that may stand inside a <script> element: no '<', '>' or '&', no NaN, no line separators of JavaScript."""
    text = json.dumps(finite(document), separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _figure(figure: Figure) -> dict[str, Any]:
    return {
        "kind": figure.kind, "y_label": figure.y_label, "log_y": figure.log_y, "cells": list(figure.cells),
        "categories": list(figure.categories), "columns": {k: list(v) for k, v in figure.columns.items()},
        "series": [] if figure.kind == "histogram" else [
            {"name": s.name, "x": list(s.x), "y": list(s.y), "colour": s.colour,
             "low": None if s.low is None else list(s.low), "high": None if s.high is None else list(s.high)}
            for s in figure.series],
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _asset(folder: str, name: str) -> str:
    return (resources.files("mpnet.report") / folder / name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _scripts() -> str:
    found = sorted(item.name for item in resources.files("mpnet.report").joinpath("static").iterdir()
                   if item.name.endswith(".js"))
    return "\n".join(_asset("static", name) for name in found)


@lru_cache(maxsize=1)
def _plotly() -> str:
    """plotly.js as the plotly package brings it; text that may stand in a script element."""
    try:
        text = (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    except OSError as error:
        raise StoreError(f"plotly.js cannot be read ({error}); install the plotly package again") from None
    # The first closes the element, the second would change how HTML reads it; neither occurs outside strings.
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _number(value: float | None, digits: int = 2, signed: bool = False) -> str:
    return number_text(value, digits, signed).replace("-", "–" if value is None or math.isnan(value) else "−")


def _minus(text: str) -> str:
    """Signs of negative numbers as typographers want them."""
    return re.sub(r"(?<=[\s(])-(?=\d)", "−", text)


def _chip(precision: str) -> Markup:
    row = PRECISIONS.get(precision)
    return Markup('<span class="chip {}">{}</span>').format(row.base if row else "", precision)


def _tone(row: ClassRow) -> str:
    if row.interval is None or row.interval.noise:
        return "noise"
    return "bad" if row.interval.difference < 0 else "good"


class _Whisker:
    """Draws intervals of all rows on one axis, so that they compare by eye."""

    def __init__(self, rows: Sequence[ClassRow]) -> None:
        found = [abs(v) for row in rows if row.interval for v in (row.interval.low, row.interval.high)]
        self.largest = max(found, default=1.0) or 1.0

    def __call__(self, interval: Interval) -> Markup:
        def place(value: float) -> float:
            return 60 + 56 * value / self.largest

        colour = "muted" if interval.noise else "bad" if interval.difference < 0 else "good"
        words = f"{_number(interval.low, 2, True)} to {_number(interval.high, 2, True)}"
        return Markup(
            '<svg width="120" height="14" viewBox="0 0 120 14" aria-hidden="true"><path d="M60 0V14" '
            'stroke="var(--line)"/><path d="M{:.1f} 7H{:.1f}" stroke="var(--{})" stroke-width="2"/><circle cx="{:.1f}" '
            'cy="7" r="3.4" fill="var(--{})"/></svg> <small>{}</small>'
        ).format(place(interval.low), place(interval.high), colour, place(interval.difference), colour, words)


def _status(data: ReportData) -> str:
    of = f" of {data.status.total:,}" if data.status.total else ""
    if data.status.state == "finished":
        return "finished" if data.kind == "sweep" else data.kind
    return f"{data.status.state}: {data.status.done:,}{of}"


def _tiles(data: ReportData) -> list[dict[str, str]]:
    table = data.configurations
    if table.chosen is None:
        return []
    tiles = []
    for row in (row for row in MEASURES if row.headline):
        name = row.name
        value, start = table.value(table.chosen, name), table.value(table.baseline, name)
        if not math.isfinite(value):
            continue
        interval = data.intervals.get(table.chosen, {}).get(name)
        change, tone, note = "", "noise", ""
        if table.baseline != table.chosen and math.isfinite(start):
            if row.cost and start > 0:
                change = f"{value / start:.0%} of baseline"
            elif row.kind != "agreement":
                change = _number(value - start, row.digits, True)
            tone = "noise" if row.cost or interval is None or interval.noise else \
                "good" if (interval.difference > 0) == row.higher else "bad"
        if interval is not None:
            note = f"95 %: {_number(interval.low, 2, True)} to {_number(interval.high, 2, True)}" \
                   + (", within noise" if interval.noise else "")
        tiles.append({"label": row.label, "value": amount(name, value), "change": change, "tone": tone, "note": note})
    return tiles


def _sections(data: ReportData, shown: Mapping[str, Figure]) -> list[tuple[str, str]]:
    wanted = [
        ("choice", "Front" if "front" in shown else "Configuration", True),
        ("sensitivity", "Sensitivity", any(n.startswith("sensitivity") for n in shown)),
        ("heat", "Heat map", "heat" in shown), ("error", "Error", bool(data.errors)),
        ("layers", "Layers", bool(data.layers)), ("classes", "Classes", bool(data.classes)),
        ("pictures", "Pictures", bool(data.changes or data.pictures)),
        ("configurations", "Table", len(data.configurations) > 1), ("protocol", "Protocol", True),
    ]
    return [(name, label) for name, label, there in wanted if there]


def _axes(data: ReportData, cost: bool) -> list[Any]:
    return [row for row in map(measure, data.configurations.columns)
            if row.cost == cost and np.isfinite(data.configurations.columns[row.name]).any()]


def _precisions(data: ReportData) -> list[Any]:
    used = {code for key in data.configurations.keys for code in key}
    return [p for code, p in BY_CODE.items() if code in used]


def _histograms(data: ReportData, shown: Mapping[str, Figure]) -> list[dict[str, Any]]:
    return [{"svg": Markup(svg.histogram(shown[f"histogram-{e.index}"], palette=svg.PAGE)), "name": e.name,
             "precision": e.precision, "figure": f"histogram-{e.index}"}
            for e in data.errors if f"histogram-{e.index}" in shown]


def _latency(data: ReportData) -> str:
    isa, threads = data.latency.get("isa"), data.latency.get("threads")
    return f"Times are medians on this machine: ISA {isa}, {threads} thread(s)." if isa else ""


def _class_verdict(data: ReportData) -> str:
    found = [c for c in data.classes if c.interval]
    real = [c for c in found if c.interval and not c.interval.noise]
    if not found:
        return ""
    names = ", ".join(clean(c.name) for c in sorted(real, key=lambda c: c.interval.difference if c.interval else 0)[:5])
    by_chance = f"; with {len(found)} classes about {max(1, round(len(found) * 0.05))} would be by chance alone"
    if not real:
        return f"None of {len(found)} classes changes beyond noise."
    return f"{len(real)} of {len(found)} classes change beyond noise ({names}){by_chance}."


def _pairs(document: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    for key, value in document.items():
        if isinstance(value, Mapping):
            out += _pairs(value, f"{prefix}{key}.")
        elif value is not None:
            text = " x ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            out.append((f"{prefix}{key}", text))
    return out
