"""Sweeps in a terminal: the front as a table with bars."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from mpnet.messages import bytes_text, count_text, limits_text
from mpnet.report.terminal import blocks
from mpnet.spec.measures import DROP, measure
from mpnet.spec.plan_key import short_key
from mpnet.spec.task import DETECTION, TASKS
from mpnet.sweep.picks import PICK_RULES

_BAR = 24


def front_chart(points: Sequence[tuple[float, float, str]], rows: int) -> list[str]:
    """One line per point (quality, cost, name): bar of the quality over the range shown; evenly thinned to `rows`."""
    if not points:
        return []
    if len(points) > rows:
        points = [points[round(i * (len(points) - 1) / (rows - 1))] for i in range(rows)]
    low, high = min(p[0] for p in points), max(p[0] for p in points)
    spread = (high - low) or 1.0
    return [f"{name}  {bar((quality - low) / spread)} {quality:8.2f}  {cost:.4g}" for quality, cost, name in points]


def bar(share: float) -> str:
    """A bar of eighths of characters, all of equal length."""
    return blocks(round(min(1.0, max(0.0, share)) * _BAR * 8)).ljust(_BAR)


def print_sweep(document: Mapping[str, Any], out: Console) -> None:
    """The end of a sweep: how much was done, the front, what was chosen."""
    out.print(
        f"{document['trials']:,} of {document['space']:,} configurations ({document['computed']:,} computed now) in "
        f"{document['seconds']:.1f} s; {document['forward_equivalents']:,.2f} forward passes per picture"
        + _theory(document)
    )
    if document["stopped"]:
        out.print(f"stopped by budget.{document['stopped']}; the same command with a larger budget goes on")
    if document["strategy"] == "one_at_a_time":
        _print_layers(document, out)
    _print_front(document, out)
    _print_picks(document, out)
    _print_verified(document.get("verified"), out)
    holdout = document["holdout"]
    if not holdout["held_out"]:
        out.print("No picture was held out: the figures are those that chose, and flatter what was chosen "
                  "(see sweep.holdout).")
    _print_gap(document.get("gap"), document, out)
    out.print(f"store: {document['store']}")


def _theory(document: Mapping[str, Any]) -> str:
    if document["trials"] != document["space"] or document["computed"] != document["space"]:
        return ""
    return f" (one walk in theory: {document['forward_equivalents_theory']:,.2f})"


def _print_front(document: Mapping[str, Any], out: Console) -> None:
    front: Sequence[Mapping[str, Any]] = document["front"]
    if not front:
        out.print("no configuration was tried")
        return
    objectives: Sequence[str] = document["objectives"]
    baseline, best = document["baseline"], document["best"]
    table = Table(title=f"Front: {len(front)} configurations that no other one beats", title_justify="left")
    table.add_column("precision")
    for name in objectives:
        table.add_column(name, justify="right")
        if any(name in row.get("held_out", {}) for row in front):
            table.add_column(f"{name}, held out", justify="right")
    table.add_column(objectives[0])
    table.add_column("")
    rows = list(front)
    for marked in (baseline, best):
        if marked is not None and all(row["trial"] != marked["trial"] for row in rows):
            rows.append(marked)
    values = [_value(row, objectives[0]) for row in rows]
    low, high = min(values), max(values)
    for row, value in zip(rows, values, strict=True):
        cells = [short_key(row["precision"]) + (f" ({row['options']})" if row["options"] else "")]
        for name in objectives:
            cells.append(_shown(_value(row, name), name))
            if any(name in other.get("held_out", {}) for other in front):
                cells.append(_shown(row.get("held_out", {}).get(name), name))
        marks = [word for word, other in (("baseline", baseline), ("chosen", best))
                 if other is not None and other["trial"] == row["trial"]]
        table.add_row(*cells, bar((value - low) / ((high - low) or 1.0)), ", ".join(marks))
    out.print(table)


def _print_picks(document: Mapping[str, Any], out: Console) -> None:
    """The picks with what each loses and saves, and the command that takes one away."""
    nearest, picks = document.get("nearest"), document.get("picks") or {}
    if nearest is not None:
        beyond = ", ".join(f"{key} by {_shown(by, key.removesuffix(DROP))}" for key, by in nearest["beyond"].items())
        limits = limits_text(document["limits"])
        out.print(f"Nothing meets the limits ({limits}). Nearest: {nearest['precision']}, beyond {beyond}.")
    if not picks:
        return
    costs = [name for name in document["objectives"] if measure(name).cost]
    table = Table(title="What you could take", title_justify="left")
    for heading in ("pick", "precision", f"{_quality(picks)} change, 95 % interval", *(f"{name} saved" for name in costs)):
        table.add_column(heading, justify="right" if heading.endswith("saved") else "left")
    for name, row in picks.items():
        table.add_row(name, short_key(row["precision"]), loss_text(row["losses"]),
                      *(f"{row['saves'][cost]:.1f} %" if cost in row["saves"] else "" for cost in costs))
    out.print(table)
    if "safe" not in picks and document["baseline"] is not None and nearest is None:
        out.print(f"No configuration of the front is safe: every one loses {_quality(picks)} that can be told from none.")
    first = next(iter(picks))
    out.print(f"{first}: {PICK_RULES[first]}; mpnet export {document['store']}:{first} --to cfg -o mixed.cfg")


def _print_verified(verified: Mapping[str, Any] | None, out: Console) -> None:
    """What of the front survives in another engine."""
    if verified is None:
        return
    engine = f"{verified['engine']} {verified['version']}".strip()
    rows = verified["rows"]
    table = Table(title=f"In {engine}: {sum(row['survived'] for row in rows)} of {len(rows)} configurations survive",
                  title_justify="left")
    task = next((task for task in TASKS.values() if rows and task.quality in rows[0]), DETECTION)
    names, labels = (task.quality, task.agreement), [measure(name).label for name in (task.quality, task.agreement)]
    for heading in ("precision", labels[0], "there", labels[1], "there", "head error", "ms", "there", ""):
        table.add_column(heading, justify="left" if heading in ("precision", "") else "right")
    for row in rows:
        figures = [row.get(name) for own in names for name in (own, f"deployed_{own}")]
        times = [row.get(name) for name in ("latency_ms", "deployed_latency_ms")]
        table.add_row(
            row["precision"] + (f" ({row['options']})" if row["options"] else ""),
            *["" if value is None or value < 0 else f"{value:.2f}" for value in figures],
            "" if row.get("head_error") is None else f"{row['head_error']:.1e}",
            *["" if value is None else f"{value:.2f}" for value in times],
            "survives" if row["survived"] else f"does not survive: {row['why']}", style="" if row["survived"] else "bold red",
        )
    out.print(table)
    out.print(f"A configuration survives when {verified['rule'].removeprefix('it survives when ')}.")
    for line in verified["notes"]:
        out.print(f"note: {line}")


def _quality(picks: Mapping[str, Any]) -> str:
    """What the losses are of."""
    named = {name for row in picks.values() for loss in row["losses"].values() for name in loss}
    return next((measure(task.quality).label for task in TASKS.values() if task.quality in named), "accuracy")


def loss_text(losses: Mapping[str, Any]) -> str:
    """Quality lost on the held-out pictures where there are any, named with their number."""
    if not losses:
        return "not measured"
    name = "held_out" if "held_out" in losses else next(iter(losses))
    loss = losses[name]
    of = next((loss[task.quality] for task in TASKS.values() if task.quality in loss), None)
    if of is None:
        return "not measured"
    on = {"held_out": "held-out pictures", "all": "pictures"}.get(name, name)
    return f"{of['difference']:+.2f} ({of['low']:+.2f} to {of['high']:+.2f}), {loss['pictures']} {on}"


def _print_layers(document: Mapping[str, Any], out: Console) -> None:
    """What each layer's precision does, both ways, most harm first."""
    rows: Sequence[Mapping[str, Any]] = document.get("layers", [])
    if not rows:
        return
    qualities = [name for name in document["objectives"] if name in rows[0]["alone"]]
    table = Table(title="Layers, most harm first: lowered alone, and kept alone while all others are lowered",
                  title_justify="left")
    for heading in ("layer", "name", "MACs", "to"):
        table.add_column(heading, justify="right" if heading == "MACs" else "left")
    for when in ("alone", "kept"):
        for name in qualities:
            table.add_column(f"{name}, {when}", justify="right")
    table.add_column(f"{qualities[0]} lost alone")
    worst = max(-float(row["alone"][qualities[0]]) for row in rows)
    for row in rows:
        changes = [row[when].get(name) for when in ("alone", "kept") for name in qualities]
        table.add_row(
            ", ".join(map(str, row["layers"])), ", ".join(row["names"]), f"{100 * row['mac_share']:.1f}%",
            row["precision"], *["" if change is None else f"{change:+.2f}" for change in changes],
            bar(-float(row["alone"][qualities[0]]) / worst if worst > 0 else 0.0),
        )
    out.print(table)


def _value(row: Mapping[str, Any], name: str) -> float:
    return float(row["metrics"].get(name, row["costs"].get(name, float("nan"))))


def _shown(value: float | None, name: str) -> str:
    if value is None:
        return ""
    row = measure(name)
    if row.unit == "B":
        return bytes_text(value)
    if row.whole:
        return count_text(value)
    return f"{value:,.2f}"


def _print_gap(gap: Mapping[str, Any] | None, document: Mapping[str, Any], out: Console) -> None:
    if gap is None or document["trials"] == document["space"]:
        return
    out.print(
        f"Against the exact front ({gap['exact_points']} configurations): {gap['found']} found, "
        f"{100 * gap['hypervolume_ratio']:.2f} % of its hypervolume, at equal cost up to "
        f"{gap['quality_lost_max']:.2f} and on average {gap['quality_lost_mean']:.2f} {document['objectives'][0]} lost"
        + (f"; nothing as cheap as its {gap['uncovered']} cheapest" if gap["uncovered"] else "")
    )


def _print_sweeps(document: Mapping[str, Any], out: Console) -> None:
    """All sweeps of a store, with what tells them apart; `STORE:2/KEY` and `--sweep 2` name the second."""
    table = Table(title="Sweeps of this store: name one as STORE:N/KEY or --sweep N", title_justify="left")
    for heading in ("sweep", "strategy", "trials", "held out", "objectives", "options"):
        table.add_column(heading, justify="right" if heading in ("sweep", "trials", "held out") else "left")
    for row in document["sweeps"]:
        table.add_row(f"{row['sweep']}{' *' if row['sweep'] == document['sweep'] else ''}", row["strategy"] or "",
                      f"{row['trials']:,}", f"{100 * (row['holdout'] or 0):.0f} %", ", ".join(row["objectives"] or ()),
                      "; ".join(row["options"]))
    out.print(table)


def print_status(document: Mapping[str, Any], out: Console) -> None:
    """One sweep's state."""
    total = f" of {document['total']:,}" if document["total"] else ""
    out.print(f"{document['store']}: {document['state']}, {document['trials']:,}{total} trials, "
              f"{document['seconds']:.1f} s so far"
              + (f", strategy {document['strategy']}" if document["strategy"] else ""))
    if document["known"] > document["trials"]:
        out.print(f"the store knows {document['known']:,} configurations under these options")
    if len(document["sweeps"]) > 1:
        _print_sweeps(document, out)
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
