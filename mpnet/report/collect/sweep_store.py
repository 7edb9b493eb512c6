# SPDX-License-Identifier: MIT
"""A sweep's store to ReportData, read only: also while the sweep runs, and after it was interrupted."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Sequence

from mpnet.engine.cost import LayerCost
from mpnet.evaluation.compare import Interval
from mpnet.json_values import JsonObject
from mpnet.model.plan_key import split_key
from mpnet.report.collect.results import layers_of, thinned
from mpnet.report.data.conditions import condition_tables
from mpnet.report.data.report_data import Layer, Pick, ReportData, Status, images_text
from mpnet.report.data.sweep_sentences import (
    failed_text,
    judged_by,
    recommendation_text,
    ruled_out_needed,
    time_lines,
    times_of,
)
from mpnet.resolve.configurations import Configurations
from mpnet.resolve.stored_sweep import StoredSweep
from mpnet.speed.latency import Latency, doubt_of, latency_text
from mpnet.sweep.choose.picks import rule_of
from mpnet.sweep.choose.recommend import RECOMMENDED, RULE, named_configurations
from mpnet.sweep.result import Stability, SweepResult, VerifiedRow, VerifiedRows


def from_store(stored_sweep: StoredSweep, path: Path, status: Status) -> ReportData:
    """Return what a report shows of one sweep of a store. status: as `mpnet sweep --status` finds it."""
    sweep, options = stored_sweep.sweep, stored_sweep.options
    result = stored_sweep.result
    named_rows = named_configurations(result) if result else {}
    table = thinned(stored_sweep.configurations, required=[row.precision for row in named_rows.values()])
    notes = [stored_sweep.why_chosen] if stored_sweep.why_chosen else []
    foreign_count = sum(row.options != options for row in result.front) if result else 0
    if result and foreign_count:
        notes.append(
            f"The sweep's front has {len(result.front)} configurations; {foreign_count} of them have other quantisation "
            "options than this page shows."
        )
    if result:
        notes += time_lines(times_of(result))
    if result and result.ruled_out:
        notes.append(_proof(result, sweep.selecting or 0))
    if stored_sweep.failed:
        notes.append(f"{failed_text(stored_sweep.failed)}.")
    if result and result.verified:
        notes += _survival(result.verified, stored_sweep.verified)
    if stored_sweep.other_options:
        notes.append(
            f"The sweep tried {stored_sweep.other_options} more set(s) of quantisation options; this page shows one of them."
        )
    if table.baseline is None:
        notes.append("The baseline is not among the finished trials, so there is nothing to compare with yet.")
    protocol = dict(sweep.protocol or {})
    held_out = max(0, (sweep.images or 0) - (sweep.selecting or 0)) if sweep.holdout else 0
    if sweep.holdout:
        protocol["selected on"] = f"{sweep.selecting} of {sweep.images} images; the rest only reports"
    return ReportData(
        title=stored_sweep.provenance.name,
        kind="sweep",
        source=str(path),
        created=_date(stored_sweep.created),
        status=status,
        layers=_layers(sweep.layers, table.keys[0]),
        configurations=table,
        protocol=protocol,
        digests={name: digest for name, digest in stored_sweep.provenance.digests.items() if digest is not None},
        held_out=held_out,
        notes=tuple(notes),
        objectives=sweep.objectives or (),
        picks=_picks(result, table, options) if result else (),
        recommendation=recommendation_text(result) if result else "",
        layers_by_noise=result.layers_by_noise if result else (),
        stability=result.stability if result else Stability(),
        conditions=condition_tables(result) if result else None,
        board=_board(sweep.latency or {}),
        versions={"strategy": sweep.strategy or "", "command": sweep.command},
    )


def _proof(result: SweepResult, selecting: int) -> str:
    """Say why configurations that were not measured on all images are not on the front."""
    needed_text = ruled_out_needed(result, "after ", selecting)
    return (
        f"{result.ruled_out:,} of {result.space:,} configurations were not measured to the end: another one that "
        f"costs no more stays better whatever the images left would bring. They were ruled out by part of the "
        f"images{needed_text}."
    )


def _picks(result: SweepResult, table: Configurations, options: str) -> tuple[Pick, ...]:
    """Return the picks of a sweep, their losses on held-out images first."""
    rows = {key: row for row, key in enumerate(table.keys)}
    picks = []
    times = times_of(result)
    for name, entry in named_configurations(result).items():
        losses, judged = {}, ""
        for kind in ("held_out", "all", "selecting"):
            of_set = entry.losses.get(kind)
            judged = judged or judged_by(of_set.losses if of_set else ())
            loss = of_set.losses.get(judged) if of_set else None
            if of_set and loss:
                losses[images_text(kind, of_set.images)] = Interval(loss.difference, loss.low, loss.high)
        picks.append(
            Pick(
                name,
                RULE if name == RECOMMENDED else rule_of(name, result),
                entry.precision,
                rows.get(entry.precision) if entry.options == options else None,
                losses,
                dict(entry.saves),
                entry.options,
                _time(times[name]) if name in times else "",
                judged,
            )
        )
    return tuple(picks)


def _time(latency: Latency) -> str:
    """Return a time as a sentence goes on: `takes 3.10 ms (3.05 to 3.20), which is unreliable`."""
    text = latency_text(latency)
    return f"{text.removeprefix('unreliable: ')}, which is unreliable" if doubt_of(latency) else text


def _board(machine: JsonObject) -> str:
    threads = machine.get("threads")
    return f"{machine['cpu']}, {threads} thread{'' if threads == 1 else 's'}" if machine.get("cpu") else ""


def _survival(verified: VerifiedRows, rows: Sequence[VerifiedRow]) -> list[str]:
    """Say what of the front survives in the engine, by which rule, and what does not."""
    if not rows:
        return []
    lost_rows = [row for row in rows if not row.survived]
    engine = f"{verified.engine} {verified.version}".strip()
    sentences = [f"Checked in {engine}: {len(rows) - len(lost_rows)} of {len(rows)} configurations survive; {verified.rule}."]
    sentences += [f"Does not survive in {engine}: {row.precision} ({row.why})." for row in lost_rows]
    return sentences + [f"{line}." for line in verified.notes]


def _layers(rows: Sequence[LayerCost], key: str) -> tuple[Layer, ...]:
    """Return the layers as the sweep keeps them; of an old one only their places in precision strings are known."""
    count, layers = len(split_key(key)[0]), layers_of(rows)
    if sum(layer.position is not None for layer in layers) == count:
        return layers
    return tuple(Layer(position, "", f"weights-{position + 1}", position, (), 0, 0) for position in range(count))


def _date(seconds: str | None) -> str:
    try:
        return datetime.fromtimestamp(float(seconds or ""), timezone.utc).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return ""
