# SPDX-License-Identifier: MIT
"""A tuning, for the terminal."""

from __future__ import annotations

from rich.console import Console

from mpnet.report.text.terminal import print_table
from mpnet.trial.tune import TuneReport


def print_tuning(report: TuneReport, console: Console) -> None:
    """Print what each stage gained on the images apart, and what was written."""
    record = report.record
    measure = record.measure.replace("_", " ")
    console.print(
        f"{record.tuned_on} images tuned, {record.apart} others judged: {measure} with the parent's fp32 network, percent"
    )
    rows: list[list[object]] = [["as it was", f"{record.agreement_before:.2f}", "", "", ""]]
    for stage in record.stages:
        interval = f"{stage.gain:+.2f} ({stage.low:+.2f} to {stage.high:+.2f})"
        state = stage.note or ("kept" if stage.kept else "not kept: no gain is shown")
        rows.append([stage.stage, f"{stage.agreement:.2f}", interval, f"{stage.seconds:.0f} s", state])
    print_table(console, ["stage", measure, "gain, 95 % interval", "time", ""], rows)
    for note in report.notes:
        console.print(f"note: {note}")
    if report.experiment is None:
        console.print(
            "nothing to win back: the configuration agrees already"
            if not record.stages
            else "nothing to win back: no stage gains on the images kept apart; nothing is written"
        )
        return
    if report.is_interrupted:
        console.print("note: stopped before its end; this is the best so far")
    console.print(f"the tuned weights' own fp32 agrees with the parent's to {record.own_fp32:.2f}")
    for path in (report.weights, report.document, report.experiment):
        console.print(str(path))
