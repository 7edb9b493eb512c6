# SPDX-License-Identifier: MIT
"""Sweeps in a terminal: the front as a table with bars."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from rich.console import Console

from mpnet.config.measures import measure
from mpnet.messages import whole_text
from mpnet.report.data.sweep_sentences import failed_text, ruled_out_needed
from mpnet.report.data.words import number_text
from mpnet.report.text.conditions import print_conditions
from mpnet.report.text.engine_check import print_engine_check
from mpnet.report.text.front import list_qualities, print_front
from mpnet.report.text.picks import print_picks
from mpnet.report.text.terminal import Share, print_table

RANKING = ("one_at_a_time", "additive")
"""Strategies that begin with each layer alone."""
LAYERS_SHOWN = 16


def print_sweep(document: Mapping[str, Any], console: Console) -> None:
    """Print the end of a sweep: how much was done, the front, what was chosen."""
    console.print(
        f"{document['trials']:,} of {whole_text(document['space'])} configurations ({document['computed']:,} computed now"
        f"{_more_ruled_out(document)}) in "
        f"{document['seconds']:.1f} s; {document['forward_equivalents']:,.2f} forward passes per image" + _theory(document)
    )
    print_failed(document, console)
    if document["stopped"]:
        console.print(f"stopped by budget.{document['stopped']}; the same command with a larger budget goes on")
    if document["strategy"] in RANKING:
        _print_layers(document, console)
    print_choice(document, console)
    print_engine_check(document, console)
    print_conditions(document, console)
    holdout = document["holdout"]
    if not holdout["held_out"]:
        console.print(
            "No image was held out: the images that chose were measured again, which flatters the choice (see sweep.holdout)."
        )
    _print_gap(document.get("gap"), document, console)
    if document.get("table"):
        console.print(f"latency: predicted by {document['table']}")
    console.print(f"store: {document['store']}", soft_wrap=True)


def print_choice(document: Mapping[str, Any], console: Console) -> None:
    """Print the front of a sweep and its picks."""
    print_front(document, console)
    print_picks(document, console)


def _more_ruled_out(document: Mapping[str, Any]) -> str:
    if not document.get("ruled_out", 0):
        return ""
    images_needed = ruled_out_needed(document, "", int(document["holdout"]["selecting"]))
    return f"; {document['ruled_out']:,} more cannot be on the front, as a part of the images proves{images_needed}"


def print_failed(document: Mapping[str, Any], console: Console) -> None:
    """Print how many configurations failed and where, if any did."""
    text = failed_text(document.get("failed") or (), document.get("space"))
    if text:
        console.print(text, soft_wrap=True)


def _theory(document: Mapping[str, Any]) -> str:
    if document["trials"] != document["space"] or document["computed"] != document["space"]:
        return ""
    return f" (one walk in theory: {document['forward_equivalents_theory']:,.2f})"


def _print_layers(document: Mapping[str, Any], console: Console) -> None:
    """Print what each layer's precision does, both ways, most harm first."""
    rows: Sequence[Mapping[str, Any]] = document.get("layers", [])
    if not rows:
        return
    qualities = [name for name in list_qualities(document) if name in rows[0]["alone"]]
    worst = max(-float(row["alone"][qualities[0]]) for row in rows)
    change_columns = [
        (change_kind, name) for change_kind in ("alone", "kept") if any(row[change_kind] for row in rows) for name in qualities
    ]
    cells: list[list[object]] = []
    for row in rows:
        changes = [row[change_kind].get(name) for change_kind, name in change_columns]
        loss = -float(row["alone"][qualities[0]])
        cells.append(
            [
                _several(row["layers"]),
                _several(row["names"]),
                f"{100 * row['mac_share']:.1f} %",
                row["precision"],
                *["" if change is None else number_text(change, 2, True) for change in changes],
                Share(loss / worst if worst > 0 else 0.0),
            ]
        )
    kept_text = (
        ", and when kept while all others are lowered"
        if any(change_kind == "kept" for change_kind, _ in change_columns)
        else ""
    )
    title = f"Layers, most harm first: change when lowered alone{kept_text}; bars: {measure(qualities[0]).label} lost alone"
    headings = [f"{measure(name).label} {change_kind}" for change_kind, name in change_columns]
    print_table(console, ["layer", "name", "MACs", "to", *headings, ""], cells, title, left=(0, 1, 3), limit=LAYERS_SHOWN)


def _several(items: Sequence[object]) -> str:
    """Return the first layers of a tie, and how many there are besides."""
    return ", ".join(map(str, items[:3])) + (f" + {len(items) - 3}" if len(items) > 3 else "")


def _print_gap(gap: Mapping[str, Any] | None, document: Mapping[str, Any], console: Console) -> None:
    settled = (
        document["trials"] + document.get("ruled_out", 0) + sum(row["configurations"] for row in document.get("failed", ()))
    )
    if gap is None or settled >= document["space"]:
        return
    console.print(
        f"Compared with the exact front ({gap['exact_points']} configurations): {gap['found']} of them found, "
        f"{100 * gap['hypervolume_ratio']:.2f} % of its hypervolume, at equal cost up to "
        f"{gap['quality_lost_max']:.2f} and on average {gap['quality_lost_mean']:.2f} {document['objectives'][0]} less"
        + (f"; its {gap['uncovered']} cheapest have no counterpart" if gap["uncovered"] else "")
    )
