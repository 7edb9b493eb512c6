# SPDX-License-Identifier: MIT
"""The data that the page's program reads, as JSON inside the page."""

from __future__ import annotations

import base64
import json
from typing import Mapping

import numpy as np

from mpnet.config.measures import MEASURES, in_report_order, measure
from mpnet.formats.documents.json_text import finite
from mpnet.json_values import Json
from mpnet.messages import visible_text
from mpnet.model.plan_key import SHORT, short_key
from mpnet.model.precision import BY_CODE, Precision
from mpnet.report.data.figure import Figure
from mpnet.report.data.report_data import ReportData
from mpnet.report.data.summary import in_words


def payload(data: ReportData, figures_by_name: Mapping[str, Figure]) -> dict[str, object]:
    """Return what the page's program reads: the configurations in columns, numbers of figures, the .cfg in pieces."""
    table = data.configurations
    names = [m.name for m in in_report_order() if m.name in table.columns]
    names += [name for name in table.columns if name not in names]
    has_long_keys = max(map(len, table.keys), default=0) > SHORT
    named_rows = {table.baseline, table.chosen, *(pick.row for pick in data.picks), *np.flatnonzero(table.front).tolist()} - {
        None
    }
    return {
        "table": {
            "keys": list(table.keys),
            "short": [short_key(key) for key in table.keys] if has_long_keys else None,
            "words": {row: in_words(data, table.keys[row]) for row in sorted(named_rows)},
            "front": np.flatnonzero(table.front).tolist(),
            "baseline": table.baseline,
            "chosen": table.chosen,
            "objective": table.objective,
            "cost": table.cost,
            "columns": {name: base64_text(table.columns[name].astype("<f8").tobytes()) for name in names},
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
        "precisions": {p.code: {"name": p.name, "base": p.base} for p in list_precisions(data)},
        "layers": [{"index": layer.index, "name": layer.name, "position": layer.position} for layer in data.layers],
        "intervals": {
            row: {name: [i.difference, i.low, i.high] for name, i in by_name.items() if i.tells}
            for row, by_name in data.intervals.items()
        },
        # The front's numbers are the table's; a second copy would double the page.
        "figures": {
            name: {k: list(v) for k, v in figure.columns.items()} for name, figure in figures_by_name.items() if name != "front"
        },
        "cfg": None
        if data.cfg is None
        else {
            "file": data.cfg.file_name,
            "encoding": data.cfg.encoding,
            "parts": [[piece if isinstance(piece, str) else dict(piece), position] for piece, position in data.cfg.pieces],
        },
    }


def embedded_json(document: object) -> str:
    """Return JSON that may stand inside a <script> element: no '<', '>' or '&', no NaN, no line separators of JavaScript."""
    text = json.dumps(_visible(finite(document)), separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _visible(value: Json) -> Json:
    """Return a document whose texts a page can show."""
    if isinstance(value, dict):
        return {visible_text(name): _visible(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_visible(item) for item in value]
    return visible_text(value) if isinstance(value, str) else value


def base64_text(data: bytes) -> str:
    """Return the bytes in Base64."""
    return base64.b64encode(data).decode("ascii")


def list_precisions(data: ReportData) -> list[Precision]:
    """Return the precisions that occur in the configurations."""
    codes = {code for key in data.configurations.keys for code in key}
    return [p for code, p in BY_CODE.items() if code in codes]
