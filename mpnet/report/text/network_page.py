# SPDX-License-Identifier: MIT
"""A NetworkPage as Markdown: for a repository, a wiki or an issue, where the report's page cannot be shown."""

from __future__ import annotations

import math
import os
import shlex
from typing import Iterable, Sequence

from mpnet.config.measures import measure
from mpnet.messages import bytes_text, counted, number_text, percent_text, visible_text
from mpnet.model.plan_key import short_key
from mpnet.model.precision import BY_CODE, PRECISIONS
from mpnet.report.data.network_page import NetworkPage, NetworkPart, PageRow
from mpnet.report.data.summary import bounds, in_words, untested
from mpnet.speed.latency import doubt_of, short_latency

RECIPES = ("onnxruntime", "tensorrt", "rknn")
"""Flavours that the page shows commands of; `mpnet targets` lists all."""
NODES_NAMED = 60
"""Most nodes of one precision that are listed."""


def render_markdown(page: NetworkPage) -> str:
    """Return the page."""
    sections = (
        _introduction(page),
        f"## What to take\n\n{_choice(page)}",
        f"## Whole configurations\n\n{_configurations(page)}",
        f"## Part by part\n\n{_parts(page)}",
        f"## In a compiler\n\n{_recipes(page)}",
        "## What this page does not say\n\n" + _items(untested(page.data)),
    )
    return visible_text("\n\n".join(sections)) + "\n"


def _introduction(page: NetworkPage) -> str:
    data, (height, width, _) = page.data, page.in_shape
    selecting = data.images - data.held_out
    chose = (
        f"{counted(selecting, 'image')} chose. All figures below are of the {page.judging} others, which chose nothing"
        if data.held_out
        else f"{counted(page.judging, 'image')} chose and are what figures below are of, so that these flatter the choice"
    )
    labels = f"; {page.labelled} of them have labels" if page.labelled else "; none of them has labels, so that AP is not known"
    layers, baseline = len(data.weighted), data.configurations.keys[data.configurations.baseline or 0]
    compared = "" if baseline == page.rows[0].key else f" The sweep itself compared with {in_words(data, baseline)}."
    classes = f"{page.classes} class{'' if page.classes == 1 else 'es'}"
    return (
        f"# {_escape(data.title)}: which layers may run lower, and what it costs\n\n"
        f"`{_escape(page.network)}`: {width}x{height} pixels, {classes}, {counted(layers, 'layer')} "
        f"with weights. {chose}{labels}. "
        f"*Agreement* is AP with the detections of {in_words(data, page.rows[0].key)} for the truth. "
        f"Searched by `{data.versions.get('strategy') or 'a sweep'}` over {counted(len(data.configurations), 'configuration')} "
        f"on {data.created[:10] or 'an unknown day'}.{compared}"
    )


def _choice(page: NetworkPage) -> str:
    data, chosen = page.data, page.chosen
    lines = [f"{_escape(data.recommendation)}"] if data.recommendation else []
    lines.append(f"{_by_parts(page)} Its figures: {_figures(page, chosen)}.")
    return "\n\n".join(lines)


def _by_parts(page: NetworkPage) -> str:
    """Say which parts have which precision: the most common one is that of all others."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for part in page.parts:
        groups.setdefault(part.precisions, []).append(f"`{_escape(part.name)}`")
    *few, most = sorted(groups.items(), key=lambda group: len(group[1]))
    clauses = [f"{' and '.join(precisions)} in {', '.join(parts)}" for precisions, parts in few]
    clauses.append(f"{' and '.join(most[0])} in all other parts" if few else f"{' and '.join(most[0])} in all parts")
    return f"By parts: {'; '.join(clauses)}."


def _figures(page: NetworkPage, row: PageRow) -> str:
    task = page.data.task
    agreement = _with_interval(row, task.agreement, itself=True)
    baseline = page.rows[0].values
    clauses = [f"agreement {agreement}"] if agreement else []
    for name, words in (("bit_operations", "the bit operations"), ("weight_bytes", "the bytes of weights")):
        clauses.append(f"{_share(row.values[name], baseline[name])} of {words}")
    return ", ".join(clauses)


def _configurations(page: NetworkPage) -> str:
    task, baseline = page.data.task, page.rows[0]
    heads = ["configuration", "agreement (95 % interval)"]
    if page.labelled:
        heads.append(f"{measure(task.quality).label}: change (95 % interval)")
    heads += ["bit operations", "weights"]
    timed = [row.latency for row in page.rows if row.latency is not None]
    heads += ["time of an image"] if timed else []
    rows = []
    for row in page.rows:
        cells = [f"{_named(page, row)}<br>`{short_key(row.key)}`", _with_interval(row, task.agreement, itself=True) or "100"]
        if page.labelled:
            quality = number_text(row.values.get(task.quality, math.nan), 2)
            change = _with_interval(row, task.quality, itself=False)
            cells.append(f"{quality}: {change}" if change else quality)
        cells.append(f"{_share(row.values['bit_operations'], baseline.values['bit_operations'])}")
        cells.append(bytes_text(row.values["weight_bytes"]))
        cells += [short_latency(row.latency) if row.latency is not None else "not timed"] if timed else []
        rows.append(cells)
    text = _table(heads, rows)
    if timed:
        threads = counted(timed[0].threads, "thread")
        text += f"\n\nTimes: {timed[0].cpu}, {timed[0].isa}, {threads}, in mpnet's own kernels."
        doubt = next(filter(None, map(doubt_of, timed)), "")
        text += f" They cannot be believed: {doubt}." if doubt else ""
    letters = f"Keys have one letter a layer with weights: {_letters(page)}."
    return f"{text}\n\nIntervals: bootstrap over the {page.judging} images. {letters}"


def _letters(page: NetworkPage) -> str:
    used = {code for row in page.rows for code in row.key}
    return ", ".join(f"`{row.code}` {row.name}" for row in PRECISIONS.values() if row.code in used)


def _parts(page: NetworkPage) -> str:
    has_noise = any(part.noise is not None for part in page.parts)
    heads = ["part", "what it is", "share of products", "of weights", *(["noise of int8"] if has_noise else []), "recommended"]
    rows = []
    for part in page.parts:
        cells = [f"`{_escape(part.name)}`", _describe(part), percent_text(100 * part.macs), percent_text(100 * part.weights)]
        if has_noise:
            cells.append("" if part.noise is None else percent_text(part.noise))
        rows.append([*cells, _bold(page, part)])
    text = _table(heads, rows)
    if has_noise:
        text += (
            "\n\n*Noise of int8* is the part's share in what lowering every part to int8 adds at the heads while most others "
            "are higher, on the images that screened: it says where to look first, not what is lost."
        )
    if any(part.noise is None for part in page.parts) and has_noise:
        text += " Of parts that the sweep tied to one precision the first has the noise of all."
    return text


def _describe(part: NetworkPart) -> str:
    """Describe a part: `6 layers, 80x80x64 to 40x40x128, feeds a head`."""
    first, last = part.shapes[0], part.shapes[-1]
    shapes = "x".join(map(str, first)) + (f" to {'x'.join(map(str, last))}" if first != last else "")
    return f"{counted(len(part.layers), 'layer')}, {shapes}{', feeds a head' if part.feeds_head else ''}"


def _bold(page: NetworkPage, part: NetworkPart) -> str:
    lowest = min((BY_CODE[code] for code in page.chosen.key if code in BY_CODE), key=lambda row: row.rank).name
    return ", ".join(name if name == lowest else f"**{name}**" for name in part.precisions)


def _ranges(page: NetworkPage) -> str:
    """Say what a compiler does otherwise with ranges; '' where it does the same."""
    quantization = page.data.protocol.get("quantization")
    activations = quantization.get("activations") if isinstance(quantization, dict) else None
    if not isinstance(activations, dict) or activations.get("ranges") != "dynamic":
        return ""
    return (
        "Ranges of activations were those of each image here. Most compilers fix them beforehand, on calibration images, and "
        "may lose more: for such a compiler sweep with `quantization.activations: calibrated`, or `mpnet init --target NAME`."
    )


def _recipes(page: NetworkPage) -> str:
    data = page.data
    name = "recommended" if "recommended" in page.chosen.names else page.chosen.key
    source = shlex.quote(f"{os.path.dirname(data.source) or data.source}:{name}")
    lines = [f"mpnet export {source} --to recipe --flavour {flavour} -o {flavour}.recipe.json" for flavour in RECIPES]
    text = "\n".join(["```sh", *lines, "```"])
    ranges = _ranges(page)
    text += f"\n\n{ranges}" if ranges else ""
    if not page.raised:
        return f"All layers have one precision, so that no layer has to be marked. A recipe says that too:\n\n{text}"
    lists = []
    for precision, nodes in page.raised.items():
        named = ", ".join(f"`{_escape(node)}`" for node in nodes[:NODES_NAMED])
        more = f" and {len(nodes) - NODES_NAMED} more" if len(nodes) > NODES_NAMED else ""
        lists.append(f"**{precision}**, {counted(len(nodes), 'layer')}: {named}{more}.")
    return (
        f"A recipe marks layers in the words of one compiler, with a script that applies it to the model's file "
        f"(`mpnet targets` lists the flavours):\n\n{text}\n\nBy hand, mark these:\n\n" + "\n\n".join(lists)
    )


def _named(page: NetworkPage, row: PageRow) -> str:
    words = in_words(page.data, row.key)
    return f"{words} ({', '.join(row.names)})" if row.names else words


def _with_interval(row: PageRow, name: str, itself: bool) -> str:
    """Return a measure, or its change, with its interval; '' for one without, as the baseline's."""
    interval, value = row.intervals.get(name), row.values.get(name, math.nan)
    if interval is None or not math.isfinite(value):
        return ""
    start = measure(name).itself if itself else None
    shown = number_text(value, 2) if itself else number_text(interval.difference, 2, True)
    return f"{shown} ({bounds(interval, start)})"


def _share(value: float, whole: float) -> str:
    return percent_text(100 * value / whole) if whole else "0 %"


def _escape(text: str) -> str:
    """Return text of a file as Markdown that says just that."""
    return text.replace("|", "\\|").replace("`", "'").replace("<", "&lt;").replace("\n", " ")


def _items(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_escape(line)}" for line in lines)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(heads), " | ".join("---" for _ in heads), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)
