# SPDX-License-Identifier: MIT
"""Sweeps in a terminal: the front as a table with bars."""

from __future__ import annotations

from typing import Sequence

from rich.console import Console

from mpnet.config.measures import measure
from mpnet.messages import number_text, whole_text
from mpnet.report.data.sweep_sentences import failed_text, ruled_out_needed
from mpnet.report.text.conditions import print_conditions
from mpnet.report.text.engine_check import print_engine_check
from mpnet.report.text.front import list_qualities, print_front
from mpnet.report.text.picks import print_picks, print_recommendation
from mpnet.report.text.terminal import Share, print_table
from mpnet.sweep.result import FailedLayer, Gap, SweepResult

RANKING = ("one_at_a_time", "additive")
"""Strategies that begin with each layer alone."""
LAYERS_SHOWN = 16


def print_sweep(result: SweepResult, console: Console) -> None:
    """Print the end of a sweep: how much was done, the front, what was chosen."""
    console.print(
        f"{result.trials:,} of {whole_text(result.space)} configurations ({result.computed:,} computed now"
        f"{_more_ruled_out(result)}) in "
        f"{result.seconds:.1f} s; {result.forward_equivalents:,.2f} forward passes per image" + _theory(result)
    )
    print_failed(result.failed, console, result.space)
    if result.stopped:
        console.print(f"stopped by budget.{result.stopped}; the same command with a larger budget goes on")
    if result.strategy in RANKING and result.layers:
        _print_layers(result, console)
    if result.layers_by_noise:
        _print_layers_by_noise(result, console)
    print_choice(result, console)
    print_recommendation(result, console)
    print_engine_check(result, console)
    print_conditions(result, console)
    if not result.holdout.held_out:
        console.print(
            "No image was held out: the images that chose were measured again, which flatters the choice (see sweep.holdout)."
        )
    if result.gap is not None:
        _print_gap(result, result.gap, console)
    if result.table:
        console.print(f"latency: predicted by {result.table}")
    console.print(f"store: {result.store}", soft_wrap=True)


def print_choice(result: SweepResult, console: Console) -> None:
    """Print the front of a sweep and its picks."""
    print_front(result, console)
    print_picks(result, console)


def _more_ruled_out(result: SweepResult) -> str:
    if not result.ruled_out:
        return ""
    images_needed = ruled_out_needed(result, "", result.holdout.selecting)
    return f"; {result.ruled_out:,} more cannot be on the front, as a part of the images proves{images_needed}"


def print_failed(failures: Sequence[FailedLayer], console: Console, space: int | None = None) -> None:
    """Print how many configurations failed and where, if any did. space: how many there are."""
    text = failed_text(failures, space)
    if text:
        console.print(text, soft_wrap=True)


def _theory(result: SweepResult) -> str:
    if result.trials != result.space or result.computed != result.space:
        return ""
    return f" (one walk in theory: {result.forward_equivalents_theory:,.2f})"


def _print_layers(result: SweepResult, console: Console) -> None:
    """Print what each layer's precision does, both ways, most harm first."""
    rows = result.layers
    qualities = [name for name in list_qualities(result) if name in rows[0].alone]
    worst = max(-row.alone[qualities[0]] for row in rows)
    has_kept = any(row.kept for row in rows)
    cells: list[list[object]] = []
    for row in rows:
        changes = [values.get(name) for values in ((row.alone, row.kept) if has_kept else (row.alone,)) for name in qualities]
        cells.append(
            [
                _several(row.layers),
                _several(row.names),
                f"{100 * row.mac_share:.1f} %",
                row.precision,
                *["" if change is None else number_text(change, 2, True) for change in changes],
                Share(-row.alone[qualities[0]] / worst if worst > 0 else 0.0),
            ]
        )
    kept_text = ", and when kept while all others are lowered" if has_kept else ""
    title = f"Layers, most harm first: change when lowered alone{kept_text}; bars: {measure(qualities[0]).label} lost alone"
    ways = ("alone", "kept") if has_kept else ("alone",)
    headings = [f"{measure(name).label} {way}" for way in ways for name in qualities]
    print_table(console, ["layer", "name", "MACs", "to", *headings, ""], cells, title, left=(0, 1, 3), limit=LAYERS_SHOWN)


def _print_layers_by_noise(result: SweepResult, console: Console) -> None:
    """Print what noise each layer brings to the heads and what lowering it saves, most noise first."""
    most = result.layers_by_noise[0].noise_percent
    cells: list[list[object]] = [
        [
            _several(row.layers),
            _several(row.names),
            f"{100 * row.mac_share:.1f} %",
            row.precision,
            f"{row.noise_percent:.1f} %",
            f"{row.saved_percent:.1f} %",
            Share(row.noise_percent / most if most > 0 else 0.0),
        ]
        for row in result.layers_by_noise
    ]
    cost = next(quantity.label for name in result.objectives if not (quantity := measure(name)).higher)
    print_table(
        console,
        ["layer", "name", "MACs", "to", "noise", f"{cost} saved", ""],
        cells,
        "Layers, most noise first: what lowering each adds at the heads while most others are high, in percent of all",
        left=(0, 1, 3),
        limit=LAYERS_SHOWN,
    )


def _several(items: Sequence[object]) -> str:
    """Return the first layers of a tie, and how many there are besides."""
    return ", ".join(map(str, items[:3])) + (f" + {len(items) - 3}" if len(items) > 3 else "")


def _print_gap(result: SweepResult, gap: Gap, console: Console) -> None:
    """Print how far the front is from the exact one, where the sweep did not settle every configuration itself."""
    settled = result.trials + result.ruled_out + sum(row.configurations for row in result.failed)
    if settled >= result.space:
        return
    console.print(
        f"Compared with the exact front ({gap.exact_points} configurations): {gap.shared} of them found, "
        f"{100 * gap.hypervolume_ratio:.2f} % of its hypervolume, at equal cost up to "
        f"{gap.quality_lost_max:.2f} and on average {gap.quality_lost_mean:.2f} {result.objectives[0]} less"
        + (f"; its {gap.uncovered} cheapest have no counterpart" if gap.uncovered else "")
    )
