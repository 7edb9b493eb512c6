# SPDX-License-Identifier: MIT
"""Sweeps in a terminal: the front as a table with bars."""

from __future__ import annotations

import shlex
from typing import Any, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from mpnet.config.measures import DROP, measure
from mpnet.messages import bytes_text, count_text, counted, limits_text, whole_text
from mpnet.model.plan_key import short_key
from mpnet.model.task import DETECTION, TASKS
from mpnet.packages import program
from mpnet.report.data.row_words import called, row_key, row_words
from mpnet.report.data.sweep_sentences import change_text, failed_text, images_text, judged_by, ruled_out_needed, time_lines
from mpnet.report.data.words import clean, number_text
from mpnet.report.text.conditions import print_conditions
from mpnet.report.text.safety import print_safety
from mpnet.report.text.terminal import Share, blocks, print_table
from mpnet.speed.steps import doubt_of
from mpnet.sweep.choose.picks import rule_of
from mpnet.sweep.problem.front import evenly

_BAR = 24
LATENCY = "latency_ms"
RANKING = ("one_at_a_time", "additive")
"""Strategies that begin with each layer alone."""
LAYERS_SHOWN = 16
FRONT_ROWS = 32
"""Most rows of a front, beside those that were picked."""


def front_chart(points: Sequence[tuple[float, float, str]], rows: int) -> list[str]:
    """One line per point (quality, cost, name): bar of the quality over the range shown; evenly thinned to `rows`."""
    if not points:
        return []
    points = evenly(points, rows)
    low, high = min(p[0] for p in points), max(p[0] for p in points)
    spread = (high - low) or 1.0
    return [f"{name}  {bar((quality - low) / spread)} {quality:8.2f}  {cost:.4g}" for quality, cost, name in points]


def bar(share: float) -> str:
    """A bar of eighths of characters, all of equal length."""
    return blocks(round(min(1.0, max(0.0, share)) * _BAR * 8)).ljust(_BAR)


def print_sweep(document: Mapping[str, Any], out: Console) -> None:
    """The end of a sweep: how much was done, the front, what was chosen."""
    out.print(
        f"{document['trials']:,} of {whole_text(document['space'])} configurations ({document['computed']:,} computed now"
        f"{_more_ruled_out(document)}) in "
        f"{document['seconds']:.1f} s; {document['forward_equivalents']:,.2f} forward passes per image" + _theory(document)
    )
    _print_failed(document, out)
    if document["stopped"]:
        out.print(f"stopped by budget.{document['stopped']}; the same command with a larger budget goes on")
    if document["strategy"] in RANKING:
        _print_layers(document, out)
    print_choice(document, out)
    _print_verified(document, out)
    print_conditions(document, out)
    holdout = document["holdout"]
    if not holdout["held_out"]:
        out.print(
            "No image was held out: the images that chose were measured again, which flatters the choice (see sweep.holdout)."
        )
    _print_gap(document.get("gap"), document, out)
    if document.get("table"):
        out.print(f"latency: predicted by {document['table']}")
    out.print(f"store: {document['store']}", soft_wrap=True)


def print_choice(document: Mapping[str, Any], out: Console) -> None:
    """The front of a sweep and its picks."""
    _print_front(document, out)
    _print_picks(document, out)


def _more_ruled_out(document: Mapping[str, Any]) -> str:
    if not document.get("ruled_out", 0):
        return ""
    needed = ruled_out_needed(document, "", int(document["holdout"]["selecting"]))
    return f"; {document['ruled_out']:,} more cannot be on the front, as a part of the images proves{needed}"


def _print_failed(document: Mapping[str, Any], out: Console) -> None:
    text = failed_text(document.get("failed") or (), document.get("space"))
    if text:
        out.print(text, soft_wrap=True)


def _theory(document: Mapping[str, Any]) -> str:
    if document["trials"] != document["space"] or document["computed"] != document["space"]:
        return ""
    return f" (one walk in theory: {document['forward_equivalents_theory']:,.2f})"


def _print_front(document: Mapping[str, Any], out: Console) -> None:
    front: Sequence[Mapping[str, Any]] = document["front"]
    if not front:
        out.print("no configuration was tried")
        return
    objectives = document["objectives"]
    marks = _marks(document)
    rows = _thinned(front, [row["trial"] in marks for row in front])
    known = {row["trial"] for row in rows}
    for row in (document["baseline"], document["best"], *(document.get("picks") or {}).values()):
        if row is not None and row["trial"] not in known:
            known.add(row["trial"])
            rows.append(row)
    columns: list[tuple[str, list[object]]] = [
        ("precision", [row_words(row) for row in rows]),
        ("key", [row_key(row) for row in rows]),
    ]
    for name in _measured(document, rows):
        columns.append((measure(name).label, [value_text(_value(row, name), name) for row in rows]))
        if any(name in row.get("held_out", {}) for row in rows):
            columns.append(("held out", [value_text(row.get("held_out", {}).get(name), name) for row in rows]))
    values = [_value(row, objectives[0]) for row in rows]
    low, high = min(values), max(values)
    columns.append(("", [", ".join(marks.get(row["trial"], ())) for row in rows]))
    columns.append((measure(objectives[0]).label, [Share((value - low) / ((high - low) or 1.0)) for value in values]))
    title = f"Front: {len(front)} configuration{'' if len(front) == 1 else 's'} that no other beats"
    parts = document["holdout"]
    if parts["held_out"]:
        title += f"; on the {counted(parts['selecting'])} that select, and on the {parts['held_out']} held out"
    _print_columns(out, columns, title)
    if len(front) > FRONT_ROWS:
        out.print(f"{FRONT_ROWS} of the front's {len(front)} are shown; --json and `mpnet report` have all")


def _marks(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is said of a trial: baseline, its picks, and chosen where that is none of these."""
    marks: dict[str, list[str]] = {}
    for name, row in (("baseline", document["baseline"]), *(document.get("picks") or {}).items()):
        if row is not None:
            marks.setdefault(row["trial"], []).append(name)
    best = document["best"]
    if best is not None and best["trial"] not in marks:
        marks[best["trial"]] = ["chosen"]
    return marks


def _thinned(front: Sequence[Mapping[str, Any]], marked: Sequence[bool]) -> list[Mapping[str, Any]]:
    """At most FRONT_ROWS rows, evenly spread, and those that are marked."""
    even = set(evenly(range(len(front)), FRONT_ROWS))
    return [row for number, row in enumerate(front) if number in even or marked[number]]


def _measured(document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a sweep ranked by, and a board's latency wherever its table gives one."""
    known = any(LATENCY in row["costs"] for row in rows)
    costs = [name for name in document["objectives"] if measure(name).cost]
    return [*_qualities(document), *costs, *([LATENCY] if known and LATENCY not in document["objectives"] else [])]


def _qualities(document: Mapping[str, Any]) -> list[str]:
    """What of the objectives is no cost, without what the images have no labels for."""
    baseline = document["baseline"] or {"metrics": {}}
    names = [name for name in document["objectives"] if not measure(name).cost]
    return [name for name in names if baseline["metrics"].get(name, 0.0) >= 0] or names


def _print_columns(out: Console, columns: Sequence[tuple[str, Sequence[object]]], title: str) -> None:
    names, cells = zip(*columns, strict=True)
    print_table(out, names, list(zip(*cells, strict=True)), title, left=(0, 1, len(names) - 2), fold=(0,))


def _print_picks(document: Mapping[str, Any], out: Console) -> None:
    """The picks with what each loses and saves, and the command that takes one away."""
    nearest, picks = document.get("nearest"), document.get("picks") or {}
    if nearest is not None:
        beyond = ", ".join(f"{key} by {value_text(by, key.removesuffix(DROP))}" for key, by in nearest["beyond"].items())
        out.print(
            f"Nothing meets the limits ({limits_text(document['limits'])}). Nearest: {called(document, nearest)}, "
            f"beyond {beyond}; its name is {document['store']}:nearest."
        )
    if not picks:
        return
    costs = [name for name in _measured(document, list(picks.values())) if measure(name).cost]
    quality = _quality(picks)
    sets = {images_text(row["losses"]) for row in picks.values()} - {""}
    columns: list[tuple[str, list[object]]] = [
        ("pick", list(picks)),
        ("precision", [row_words(row) + (f" ({row['options']})" if row["options"] else "") for row in picks.values()]),
        (f"{quality} change, 95 % interval", [change_text(row["losses"]) for row in picks.values()]),
    ]
    again = (document.get("stability") or {}).get("picks") or {}
    if again:
        columns.append(("picked again", [f"{again[name]:.0f} %" if name in again else "" for name in picks]))
    for cost in costs:
        if cost == LATENCY:
            columns.append((measure(cost).label, [value_text(_value(row, cost), cost) + " ms" for row in picks.values()]))
        columns.append(
            (
                f"{measure(cost).label} saved",
                [f"{row['saves'][cost]:.1f} %" if cost in row["saves"] else "" for row in picks.values()],
            )
        )
    times = document.get("times") or {}
    if times:
        columns.append(("time here", [_time(times[name]) if name in times else "" for name in picks]))
    names, cells = zip(*columns, strict=True)
    title = "What you could take" + (f"; {quality} on {', '.join(sorted(sets))}" if sets else "")
    print_table(out, names, list(zip(*cells, strict=True)), title, left=(0, 1))
    for name, row in picks.items():
        if row.get("words", row_words(row)) != row_words(row):  # which were too long for the table
            out.print(f"{name}: {row['words']}")
    for line in time_lines(times):
        out.print(line)
    print_safety(document, out)
    first = next(iter(picks))
    command = f"{program()} export {shlex.quote(document['store'] + ':' + first)} -o mixed.cfg"
    out.print(f"{first}: {rule_of(first, document)}; {command}", soft_wrap=True)
    if document.get("limits") and first != "smallest" in picks:
        out.print(f"smallest: {rule_of('smallest', document)}")


def _time(latency: Mapping[str, Any]) -> str:
    return f"{'unreliable, ' if doubt_of(latency) else ''}{latency['median_ms']:.2f} ms"


def _print_verified(document: Mapping[str, Any], out: Console) -> None:
    """What of the front survives in another engine."""
    verified = document.get("verified")
    if verified is None:
        return
    engine = f"{verified['engine']} {verified['version']}".strip()
    rows = verified["rows"]
    task = next((task for task in TASKS.values() if rows and task.quality in rows[0]), DETECTION)
    names, labels = (task.quality, task.agreement), [measure(name).label for name in (task.quality, task.agreement)]
    cells: list[list[object]] = []
    for row in rows:
        figures = [row.get(name) for base in names for name in (base, f"deployed_{base}")]
        times = [row.get(name) for name in ("latency_ms", "deployed_latency_ms")]
        outcome = Text("survives") if row["survived"] else Text("lost", style="bold red")
        cells.append(
            [
                called(document, row),
                row_key(row),
                *["" if value is None or value < 0 else f"{value:.2f}" for value in figures],
                "" if row.get("head_error") is None else f"{row['head_error']:.1e}",
                *["" if value is None else f"{value:.2f}" for value in times],
                outcome,
            ]
        )
    headings = ("precision", "key", labels[0], "there", labels[1], "there", "head error", "ms", "there", "")
    survived = sum(row["survived"] for row in rows)
    title = f"In {engine}: {survived} of {len(rows)} configurations survive"
    print_table(out, headings, cells, title, left=(0, 1, len(headings) - 1), fold=(0,))
    for row in rows:
        if not row["survived"]:
            out.print(f"{called(document, row)} ({short_key(row['precision'])}) does not survive: {clean(row['why'])}.")
    out.print(f"A configuration survives when {verified['rule'].removeprefix('it survives when ')}.")
    for line in verified["notes"]:
        out.print(f"note: {line}")


def _quality(picks: Mapping[str, Any]) -> str:
    """What the losses are of."""
    named = {name: 1 for row in picks.values() for loss in row["losses"].values() for name in loss}
    name = judged_by(named)
    return measure(name).label if name else "accuracy"


def _print_layers(document: Mapping[str, Any], out: Console) -> None:
    """What each layer's precision does, both ways, most harm first."""
    rows: Sequence[Mapping[str, Any]] = document.get("layers", [])
    if not rows:
        return
    qualities = [name for name in _qualities(document) if name in rows[0]["alone"]]
    worst = max(-float(row["alone"][qualities[0]]) for row in rows)
    both = [(when, name) for when in ("alone", "kept") if any(row[when] for row in rows) for name in qualities]
    cells: list[list[object]] = []
    for row in rows:
        changes = [row[when].get(name) for when, name in both]
        lost = -float(row["alone"][qualities[0]])
        cells.append(
            [
                _several(row["layers"]),
                _several(row["names"]),
                f"{100 * row['mac_share']:.1f} %",
                row["precision"],
                *["" if change is None else number_text(change, 2, True) for change in changes],
                Share(lost / worst if worst > 0 else 0.0),
            ]
        )
    kept = ", and when kept while all others are lowered" if any(when == "kept" for when, _ in both) else ""
    title = f"Layers, most harm first: change when lowered alone{kept}; bars: {measure(qualities[0]).label} lost alone"
    headings = [f"{measure(name).label} {when}" for when, name in both]
    print_table(out, ["layer", "name", "MACs", "to", *headings, ""], cells, title, left=(0, 1, 3), limit=LAYERS_SHOWN)


def _several(items: Sequence[object]) -> str:
    """Layers that are tied: the first ones, and how many there are besides."""
    return ", ".join(map(str, items[:3])) + (f" + {len(items) - 3}" if len(items) > 3 else "")


def _value(row: Mapping[str, Any], name: str) -> float:
    return float(row["metrics"].get(name, row["costs"].get(name, float("nan"))))


def value_text(value: float | None, name: str) -> str:
    """The value of a measure for a table; '' where it is not known, and - for -1, where there was nothing to measure."""
    if value is None:
        return ""
    quantity = measure(name)
    if quantity.unit == "B":
        return bytes_text(value)
    if quantity.whole:
        return count_text(value)
    return "-" if value < 0 and not quantity.cost else f"{value:,.2f}"


def _print_gap(gap: Mapping[str, Any] | None, document: Mapping[str, Any], out: Console) -> None:
    settled = (
        document["trials"] + document.get("ruled_out", 0) + sum(row["configurations"] for row in document.get("failed", ()))
    )
    if gap is None or settled >= document["space"]:
        return
    out.print(
        f"Compared with the exact front ({gap['exact_points']} configurations): {gap['found']} of them found, "
        f"{100 * gap['hypervolume_ratio']:.2f} % of its hypervolume, at equal cost up to "
        f"{gap['quality_lost_max']:.2f} and on average {gap['quality_lost_mean']:.2f} {document['objectives'][0]} less"
        + (f"; its {gap['uncovered']} cheapest have no counterpart" if gap["uncovered"] else "")
    )


def print_sweeps(sweeps: Sequence[Mapping[str, Any]], shown: int | None, out: Console) -> None:
    """One row per sweep of a store; `shown` is the one that is spoken of."""
    cells: list[list[object]] = [
        [
            f"{row['sweep']}{' *' if row['sweep'] == shown else ''}",
            row["strategy"] or "",
            f"{row['trials']:,}",
            f"{100 * (row['holdout'] or 0):.0f} %",
            ", ".join(row["objectives"] or ()),
            "; ".join(row["options"]),
        ]
        for row in sweeps
    ]
    print_table(
        out,
        ("sweep", "strategy", "trials", "held out", "objectives", "options"),
        cells,
        "Sweeps of this store: name one as STORE:N/KEY or --sweep N",
        left=(1, 4, 5),
    )


def print_status(document: Mapping[str, Any], out: Console) -> None:
    """One sweep's state."""
    total = f" of {document['total']:,}" if document["total"] else ""
    ruled_out = f", {document['ruled_out']:,} ruled out" if document["ruled_out"] else ""
    out.print(
        f"{document['store']}: {document['state']}, {document['trials']:,}{total} trials{ruled_out}, "
        f"{document['seconds']:.1f} s so far" + (f", strategy {document['strategy']}" if document["strategy"] else "")
    )
    _print_failed(document, out)
    if document["known"] > document["trials"]:
        out.print(f"the store knows {document['known']:,} configurations under these options")
    if len(document["sweeps"]) > 1:
        print_sweeps(document["sweeps"], document["sweep"], out)
    if document["workers"]:
        out.print(f"working on it: {', '.join(document['workers'])}")
    if document["state"] == "interrupted":
        out.print("the same `mpnet sweep` command goes on from there")
    if document["findings"]:
        _print_front(document["findings"], out)


def print_salvaged(document: Mapping[str, Any], out: Console) -> None:
    """What was saved of a damaged store."""
    out.print(f"{document['salvaged']}: {document['trials']:,} trials of {document['store']}")
    for what in document["lost"]:
        out.print(f"lost: {what}")
    out.print(f"the same `mpnet sweep` command with --store {document['salvaged']} goes on from there")
