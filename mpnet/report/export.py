"""A report's figures and numbers as files: SVG for papers, CSV and JSON beside every picture."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any, Mapping, Sequence

from mpnet.errors import StoreError
from mpnet.report import figures, svg
from mpnet.report.model import ReportData


def write_figures(data: ReportData, folder: Path) -> list[Path]:
    """Every plot as folder/NAME.svg. Raises: StoreError when the folder cannot be written."""
    return [write_text(folder / f"{figure.name}.svg", svg.draw(figure)) for figure in figures.all_figures(data)]


def write_data(data: ReportData, folder: Path) -> list[Path]:
    """The numbers of every plot as folder/NAME.csv and NAME.json. Raises: StoreError as `write_figures`."""
    written = []
    for figure in figures.all_figures(data):
        written.append(write_text(folder / f"{figure.name}.csv", csv_text(figure.columns)))
        written.append(write_text(folder / f"{figure.name}.json", json_text(figure.columns)))
    if data.changes:
        columns: dict[str, Sequence[Any]] = {
            "kind": [c.kind for c in data.changes], "class": [c.name for c in data.changes],
            "picture": [c.picture for c in data.changes], "score": [c.score for c in data.changes],
            "iou": [c.overlap for c in data.changes],
            **{side: [c.box[i] for c in data.changes] for i, side in enumerate(("x0", "y0", "x1", "y1"))},
        }
        written.append(write_text(folder / "changes.csv", csv_text(columns)))
        written.append(write_text(folder / "changes.json", json_text(columns)))
    return written


def csv_text(columns: Mapping[str, Sequence[Any]]) -> str:
    """One line per row; a text that a spreadsheet would take for a formula begins with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([_cell(value) for value in row])
    return out.getvalue()


def json_text(columns: Mapping[str, Sequence[Any]]) -> str:
    """Columns as lists; null for what is not a number."""
    return json.dumps({name: [_finite(value) for value in values] for name, values in columns.items()},
                      indent=1, allow_nan=False) + "\n"


def write_text(path: Path, text: str) -> Path:
    """Write a file that appears whole or not at all. Raises: StoreError naming it."""
    scratch = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, scratch = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            # mkstemp makes files for one user only; a report is for others.
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
        scratch = None
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror or error}); choose another place") from None
    finally:
        if scratch is not None and os.path.exists(scratch):
            os.unlink(scratch)
    return path


def _finite(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(value: Any) -> Any:
    value = _finite(value)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return "" if value is None else value
