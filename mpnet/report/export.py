# SPDX-License-Identifier: MIT
"""A report's figures and numbers as files: SVG for papers, CSV and JSON beside every image."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Mapping, Sequence

from mpnet.formats.documents.json_text import finite
from mpnet.formats.files.atomic import write_text
from mpnet.messages import cell_text
from mpnet.report.data import figures
from mpnet.report.data.report_data import ReportData
from mpnet.report.html import svg


def write_figures(data: ReportData, folder: Path) -> list[Path]:
    """Write every plot as folder/NAME.svg. Raises: StoreError when the folder cannot be written."""
    return _write(folder, {f"{figure.name}.svg": svg.draw(figure) for figure in figures.all_figures(data)})


def write_data(data: ReportData, folder: Path) -> list[Path]:
    """Write the numbers of every plot as folder/NAME.csv and NAME.json. Raises: StoreError as `write_figures`."""
    tables: dict[str, Mapping[str, Sequence[object]]] = {f.name: f.columns for f in figures.all_figures(data)}
    if data.changes:
        rows = [change.columns() for change in data.changes]
        tables["changes"] = {name: [row[name] for row in rows] for name in rows[0]}
    texts = {}
    for name, columns in tables.items():
        texts[f"{name}.csv"], texts[f"{name}.json"] = csv_text(columns), json_text(columns)
    return _write(folder, texts)


def _write(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def csv_text(columns: Mapping[str, Sequence[object]]) -> str:
    """Return columns as CSV, one line per row, without formulas."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(cell_text, columns))
    for row in zip(*columns.values(), strict=True):
        writer.writerow([_cell(value) for value in row])
    return stream.getvalue()


def json_text(columns: Mapping[str, Sequence[object]]) -> str:
    """Return the columns as JSON lists; null for what is not a number."""
    return json.dumps(finite(columns), indent=1, allow_nan=False) + "\n"


def _cell(value: object) -> object:
    value = finite(value)
    if isinstance(value, str):
        return cell_text(value)
    return "" if value is None else value
