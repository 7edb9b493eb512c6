# SPDX-License-Identifier: MIT
"""One A4 page for whoever signs: the choice, what was measured on what, what it may lose and saves, what was not tested."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import tempfile
from html import escape
from pathlib import Path
from typing import Iterable, Sequence

from mpnet.config.measures import MEASURES, measure
from mpnet.errors import ConfigError
from mpnet.formats.files.atomic import atomic_path
from mpnet.messages import counted, number_text, percent_text, visible_text
from mpnet.model.plan_key import short_key, split_key
from mpnet.model.precision import BY_CODE
from mpnet.report.data.report_data import ReportData
from mpnet.report.data.summary import amount, bounds, in_words, untested, verdict
from mpnet.report.data.task_words import protocol_text

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PDF_SECONDS = 120
DIGESTS = ("cfg", "weights", "data", "calibration", "trial")
LAYERS_NAMED = 12
"""Most layers of one precision that are listed by name."""
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Statement: {title}</title>
<style>@page{{size:A4;margin:16mm}}
body{{font:10.5pt/1.35 system-ui,sans-serif;max-width:178mm;margin:4mm auto;color:#111;background:#fff}}
h1{{font-size:16pt;margin:0 0 2mm}}h2{{font-size:11pt;margin:4mm 0 1mm;border-bottom:1px solid #999}}
p,ul{{margin:0 0 1mm}}ul{{padding-left:5mm}}
table{{border-collapse:collapse}}td,th{{padding:0 4mm 0 0;text-align:left;vertical-align:top}}
code{{font-size:8pt;overflow-wrap:anywhere}}
.sign{{margin-top:8mm;display:flex;gap:10mm}}.sign span{{flex:1;border-top:1px solid #111}}</style></head>
<body><h1>{title}</h1>
{sections}
<p class="sign"><span>date</span><span>name</span><span>signature</span></p></body></html>
"""


def statement(data: ReportData) -> str:
    """Return the page as HTML. Raises: ConfigError where there is no chosen configuration or no baseline."""
    table = data.configurations
    if table.chosen is None or table.baseline is None:
        raise ConfigError("--statement: needs a configuration and its baseline; name two runs, the baseline first, or a sweep")
    sections = (
        ("The choice", _choice(data)),
        ("What was measured", _measurements(data)),
        ("What it may lose, with 95 % confidence", _losses(data)),
        ("What it saves", _savings(data)),
        ("What was not tested", _items(untested(data))),
        ("Digests (SHA-256)", _digests(data)),
    )
    body = "\n".join(f"<section><h2>{escape(title)}</h2>{content}</section>" for title, content in sections)
    return visible_text(_PAGE.format(title=escape(data.title), sections=body))


def write_statement(data: ReportData, path: Path) -> None:
    """Write the page as HTML, or as PDF where the file is called so and there is a chromium.

    Raises: ConfigError, StoreError.
    """
    html = statement(data)
    with atomic_path(path) as partial:
        if path.suffix.lower() == ".pdf":
            _print_pdf(html, partial, path)
        else:
            partial.write_text(html, encoding="utf-8", errors="backslashreplace")


def _print_pdf(html: str, partial: Path, path: Path) -> None:
    program = os.environ.get("MPNET_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        raise ConfigError(f"{path}: a PDF is printed by chromium, which is not here; name a .html file and print that")
    with tempfile.TemporaryDirectory() as folder:
        page, pdf = Path(folder, "page.html"), Path(folder, "page.pdf")
        page.write_text(html, encoding="utf-8", errors="backslashreplace")
        # Root may not use the sandbox; the page runs no program and asks for nothing.
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
        command += ["--no-pdf-header-footer", f"--print-to-pdf={pdf}", page.as_uri()]
        try:
            subprocess.run(command, capture_output=True, timeout=PDF_SECONDS, check=True)
            partial.write_bytes(pdf.read_bytes())
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigError(f"{path}: {program} did not print it ({type(error).__name__}); name a .html file") from None


def _items(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _choice(data: ReportData) -> str:
    table = data.configurations
    key = table.keys[table.chosen or 0]
    layers = {layer.position: layer.name for layer in data.weighted}
    codes = split_key(key)[0]
    lines = []
    for code in sorted(set(codes), key=codes.count):
        names = [layers.get(position, str(position)) for position, layer_code in enumerate(codes) if layer_code == code]
        name_list = f": {', '.join(names)}" if len(names) <= LAYERS_NAMED else ""
        lines.append(f"{BY_CODE[code].name} in {len(names)} of {len(codes)} layers with weights{name_list}")
    rules = [f"{pick.name}: {pick.rule}" for pick in data.picks if pick.row == table.chosen]
    heading = f"<p>{escape(in_words(data, key))} (<code>{escape(short_key(key))}</code> of {escape(data.source)})</p>"
    recommendation = f"<p>{escape(data.recommendation)}</p>" if data.recommendation else ""
    return heading + recommendation + _items([*lines, *rules])


def _measurements(data: ReportData) -> str:
    protocol = data.protocol
    images = counted(data.images) if data.images else "an unknown number of images"
    if data.held_out:
        images += f", {data.held_out} of which were held out: they did not choose"
    lines = [f"On {images}. The baseline is {in_words(data, data.configurations.keys[data.configurations.baseline or 0])}."]
    names = ("dataset", "condition", "resize", "confidence", "nms", "metric")
    settings = [f"{name} {protocol_text(protocol[name])}" for name in names if protocol.get(name) not in (None, "")]
    version = data.versions.get("mpnet")
    lines += [f"Protocol: {', '.join(settings)}."] if settings else []
    lines += [f"Measured {data.created or 'at an unknown time'}{f' with mpnet {version}' if version else ''}."]
    return _items(lines)


def _losses(data: ReportData) -> str:
    table = data.configurations
    intervals = data.intervals.get(table.chosen or 0, {})
    rows = []
    for name in (data.judged + column for column in (data.task.quality, data.task.agreement)):
        value, baseline_value = table.value(table.chosen, name), table.value(table.baseline, name)
        if not math.isfinite(value):
            continue
        interval, quantity = intervals.get(name), measure(name)
        if interval is None:
            outcome = "no interval is known"
        elif quantity.judged:
            outcome = verdict(interval)
        else:
            outcome = f"95 % interval: {bounds(interval, quantity.itself)}"
        rows.append((quantity.label, number_text(value), number_text(baseline_value), outcome, data.images_of(name)))
    lost_count = sum(change.kind != "gained" for change in data.changes)
    counts = (
        [f"{lost_count} objects lost or moved, {len(data.changes) - lost_count} gained on all images."] if data.changes else []
    )
    heads = ("measure", "this", "baseline", "interval", "on")
    return _table(heads, rows) + _items([*counts, *([f"{data.verdict}."] if data.verdict else [])])


def _savings(data: ReportData) -> str:
    table, rows = data.configurations, []
    for quantity in (m for m in MEASURES if m.cost):
        value, baseline_value = table.value(table.chosen, quantity.name), table.value(table.baseline, quantity.name)
        if math.isfinite(value) and math.isfinite(baseline_value) and baseline_value > 0 and quantity.headline:
            saving = f"{percent_text(100 * (1 - value / baseline_value))} saved"
            rows.append((quantity.label, amount(quantity.name, value), amount(quantity.name, baseline_value), saving))
    times = [pick.time for pick in data.picks if pick.row == table.chosen and pick.time]
    heads = ("cost", "this", "baseline", "")
    return _table(heads, rows) + (_items([f"Time of one image on the machine that swept: {times[0]}."]) if times else "")


def _digests(data: ReportData) -> str:
    digests = [(name, str(data.digests[name])) for name in DIGESTS if data.digests.get(name)]
    return "".join(f"<p>{name} <code>{escape(digest)}</code></p>" for name, digest in digests)
