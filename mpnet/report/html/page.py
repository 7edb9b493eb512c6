# SPDX-License-Identifier: MIT
"""ReportData to one self-contained HTML file that asks nothing of any network."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from typing import Mapping, Sequence

import jinja2
import numpy as np
from markupsafe import Markup

from mpnet.config.measures import measure
from mpnet.evaluation.compare import Interval
from mpnet.messages import counted, visible_text
from mpnet.model.plan_key import short_key
from mpnet.model.precision import PRECISIONS
from mpnet.report.colours import style_sheet
from mpnet.report.data import figures
from mpnet.report.data.differences import KINDS, ClassRow
from mpnet.report.data.figure import Figure
from mpnet.report.data.operating_point import MEASURE_LABELS, kind_label, operating_sentences
from mpnet.report.data.report_data import ReportData, images_text
from mpnet.report.data.summary import in_words, sentences
from mpnet.report.data.task_words import words_of
from mpnet.report.html import svg
from mpnet.report.html.payload import base64_text, embedded_json, list_precisions, payload
from mpnet.report.html.values import (
    class_verdict,
    confusion_table,
    draw_histograms,
    flatten_pairs,
    format_number,
    latency_text,
    list_axes,
    list_explained_measures,
    list_filters,
    list_sections,
    list_tiles,
    pick_cards,
    status_text,
    with_minus_signs,
)

CLOUD_DRAWN = 400
"""Most dominated configurations in the front's first image, before the page's program draws all."""


def render(data: ReportData) -> str:
    """Return the page. Names, notes and file names in `data` are shown as text, whatever they contain."""
    figures_by_name = {figure.name: figure for figure in figures.all_figures(data)}
    template = _environment(data).from_string(_asset("templates", "report.html.j2"))
    page = template.render(
        data=data,
        table=data.configurations,
        **_page_values(data, figures_by_name),
        **_summary_values(data),
        **_figure_values(data, figures_by_name),
        **_difference_values(data),
        **_layer_values(data, figures_by_name),
    )
    return visible_text(page)


def _environment(data: ReportData) -> jinja2.Environment:
    """Return what the template may call: filters and functions. All other texts are escaped."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters.update(
        num=format_number,
        jpeg=lambda data: f"data:image/jpeg;base64,{base64_text(data)}",
        counted=counted,
        product=lambda shape: int(np.prod(shape)),
        short=short_key,
        quoted=shlex.quote,
    )
    environment.globals.update(chip=_chip, images_text=images_text, whisker=_Whisker(data.classes), tone=_tone, measure=measure)
    environment.globals.update(measure_labels=MEASURE_LABELS, kind_label=kind_label)
    return environment


def _page_values(data: ReportData, figures_by_name: Mapping[str, Figure]) -> dict[str, object]:
    """Return the page's style, its program with the data that it reads, and the policy that lets just this program run.

    A name that slipped through as markup could still do nothing.
    """
    script = _scripts()
    policy = (
        f"default-src 'none'; script-src 'sha256-{base64_text(hashlib.sha256(script.encode()).digest())}'; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    return {
        "policy": policy,
        "css": Markup(_asset("static", "report.css") + style_sheet()),
        "script": Markup(script),
        "payload": Markup(embedded_json(payload(data, figures_by_name))),
    }


def _summary_values(data: ReportData) -> dict[str, object]:
    """Return what the head of the page says, the explanation of terms, and the documents at its end."""
    return {
        "sentences": [with_minus_signs(sentence) for sentence in sentences(data)],
        "status_text": status_text(data),
        "tiles": list_tiles(data),
        "picks": pick_cards(data),
        "chosen_words": in_words(data, data.configurations.keys[data.configurations.chosen or 0]),
        "means": list_explained_measures(data),
        "documents": [
            ("Protocol", flatten_pairs(data.protocol)),
            ("Digests", flatten_pairs(data.digests)),
            ("Versions", flatten_pairs(data.versions)),
            ("Latency", flatten_pairs(data.latency)),
        ],
    }


def _figure_values(data: ReportData, figures_by_name: Mapping[str, Figure]) -> dict[str, object]:
    """Return the figures as SVG, their names by section, and the axes that the front can have."""
    sensitivities = [figure for name, figure in figures_by_name.items() if name.startswith("sensitivity-")]
    return {
        "sections": list_sections(data, figures_by_name),
        "charts": {name: _chart(figure) for name, figure in figures_by_name.items()},
        "figures": figures_by_name,
        "stability_names": [name for name in figures_by_name if name.startswith("stability-")],
        "sensitivity_names": [figure.name for figure in sensitivities],
        "all_but": any(series.name.startswith(figures.ALL_BUT) for figure in sensitivities for series in figure.series),
        "objectives": list_axes(data, False),
        "costs": list_axes(data, True),
    }


def _difference_values(data: ReportData) -> dict[str, object]:
    """Return what differs between baseline and chosen configuration: classes, errors at a threshold, lost and gained."""
    illustrated = [change for change in data.changes if change.jpeg is not None]
    point = data.operating_point
    sentences = [] if point is None else operating_sentences(point)
    return {
        "per_class": [measure(name) for name in data.task.per_class],
        "matched": words_of(data.task).matched,
        "class_verdict": class_verdict(data),
        "confusion": confusion_table(data),
        "point": point,
        "point_lines": [with_minus_signs(line) for line in sentences],
        "crops": sorted(illustrated, key=lambda change: change.order),
        "changes": sorted(data.changes, key=lambda change: change.order),
        "filters": list_filters(data),
        **{kind: sum(change.kind == kind for change in data.changes) for kind in KINDS},
    }


def _layer_values(data: ReportData, figures_by_name: Mapping[str, Figure]) -> dict[str, object]:
    """Return what the tables of layers need beside `data`."""
    return {
        "precisions": list_precisions(data),
        "histograms": draw_histograms(data, figures_by_name),
        "total_macs": sum(layer.macs for layer in data.layers),
        "latency_text": latency_text(data),
    }


def _chart(figure: Figure) -> Markup:
    """Draw a figure for the page, in colours that follow light and dark."""
    if figure.name == "front":
        series = tuple(
            replace(s, x=s.x[::step], y=s.y[::step]) if (step := -(-len(s.x) // CLOUD_DRAWN)) > 1 and s.colour == "muted" else s
            for s in figure.series
        )
        figure = replace(figure, series=series)
        return Markup(svg.draw(figure, 960, 440, svg.PAGE, has_title=False))
    drawing = svg.draw(figure, 520, 300, svg.PAGE, has_title=False)
    width = int(drawing.partition(' width="')[2].partition('"')[0])
    # Letters stay readable: what is wider than the screen scrolls.
    return Markup(f'<div style="min-width: {0.85 * width:.0f}px; max-width: {1.4 * width:.0f}px">{drawing}</div>')


def _asset(folder: str, name: str) -> str:
    return (resources.files("mpnet.report.html") / folder / name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _scripts() -> str:
    names = sorted(
        item.name for item in resources.files("mpnet.report.html").joinpath("static").iterdir() if item.name.endswith(".js")
    )
    return "\n".join(_asset("static", name) for name in names)


def _chip(precision: str) -> Markup:
    row = PRECISIONS.get(precision)
    return Markup('<span class="chip {}">{}</span>').format(row.base if row else "", precision)


def _tone(of_class: ClassRow) -> str:
    if of_class.interval is None or of_class.interval.noise or of_class.is_few:
        return "noise"
    return "bad" if of_class.interval.difference < 0 else "good"


class _Whisker:
    """A drawing of the intervals of all rows on one axis, so that they compare by eye."""

    def __init__(self, rows: Sequence[ClassRow]) -> None:
        ends = [abs(v) for row in rows if row.interval for v in (row.interval.low, row.interval.high)]
        self.largest = max(ends, default=1.0) or 1.0

    def __call__(self, interval: Interval) -> Markup:
        def x_of(value: float) -> float:
            return 60 + 56 * value / self.largest

        colour = "muted" if interval.noise else "bad" if interval.difference < 0 else "good"
        words = f"{format_number(interval.low, 2, True)} to {format_number(interval.high, 2, True)}"
        return Markup(
            '<svg width="120" height="14" viewBox="0 0 120 14" aria-hidden="true"><path d="M60 0V14" '
            'stroke="var(--line)"/><path d="M{:.1f} 7H{:.1f}" stroke="var(--{})" stroke-width="2"/><circle cx="{:.1f}" '
            'cy="7" r="3.4" fill="var(--{})"/></svg> <small>{}</small>'
        ).format(x_of(interval.low), x_of(interval.high), colour, x_of(interval.difference), colour, words)
