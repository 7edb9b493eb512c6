# SPDX-License-Identifier: MIT
"""Times of a network's passes and layers as tables."""

from __future__ import annotations

from typing import Iterator, Sequence

from rich.console import Console

from mpnet.messages import count_text
from mpnet.model.plan_key import short_key
from mpnet.report.data.words import clean
from mpnet.report.text.latency_table import print_board_state
from mpnet.report.text.terminal import print_table
from mpnet.speed.bench import BELIEVED, Bench, BenchCase, BenchStep, gops


def print_bench(bench: Bench, console: Console) -> None:
    """Print for each ISA level and number of threads the passes by precision, and the layers."""
    if bench.machine:
        console.print(clean(f"measured on {bench.machine['host']}"))
        print_board_state(bench.machine, console)
    for isa, peak in bench.peaks.items():
        console.print(f"{isa}: peak of one thread {2 * peak.fp32:.1f} GFLOP/s in fp32, {2 * peak.int8:.1f} GOP/s in int8")
    for isa, threads in dict.fromkeys((case.isa, case.threads) for case in bench.cases):
        cases = [case for case in bench.cases if (case.isa, case.threads) == (isa, threads)]
        machine = f"{isa}, {threads} thread{'s' if threads > 1 else ''}"
        is_impossible = any(case.is_impossible for case in cases)
        _print_passes(cases, machine, is_impossible, console)
        headings = ("layer", "MACs", *(short_key(case.precision) for case in cases))
        print_table(console, headings, _layer_rows(bench, cases, is_impossible), f"{machine}: ms (share of peak) per layer")
        if is_impossible:
            reason = bench.peaks[isa].doubt or "the machine was slower while the peak was measured than during the passes"
            console.print(
                f"?: more than the peak of {isa}, and some of it more than any kernel can, so do not believe these shares: "
                f"{reason}. The same command measures both again; stop other programs first."
            )
    console.print("conversions and engine: share of a pass; first result: of a configuration that never ran, over a pass of it")


def _print_passes(cases: Sequence[BenchCase], machine: str, is_impossible: bool, console: Console) -> None:
    headings = ("precision", "min ms", "median ms", "GOP/s", "of peak", "conversions", "engine", "first result")
    rows = [
        [
            short_key(case.precision),
            f"{case.min_ms:.2f}",
            f"{case.median_ms:.2f}",
            f"{gops(case.macs, case.min_ms):.1f}",
            _share_text(case.share, is_impossible),
            f"{case.conversions_ms / case.median_ms:.1%}",
            "-" if case.overhead_ms is None else f"{case.overhead_ms / case.median_ms:.1%}",
            "-" if case.first_result is None else f"{case.first_result:.2f}x",
        ]
        for case in cases
    ]
    print_table(console, headings, rows, machine)


def _layer_rows(bench: Bench, cases: Sequence[BenchCase], is_impossible: bool) -> Iterator[list[str]]:
    """Yield a row per layer that takes time, with its conversions; a cell per precision."""
    for layer in bench.network.layers:
        steps_of_cases = [[step for step in case.steps if step.time.step.layer == layer.index] for case in cases]
        if any(steps_of_cases):
            macs = max((step.macs for steps in steps_of_cases for step in steps), default=0)
            yield [
                f"{layer.index} {layer.name}",
                count_text(macs) if macs else "",
                *(_time_text(steps, is_impossible) for steps in steps_of_cases),
            ]


def _time_text(steps: Sequence[BenchStep], is_impossible: bool) -> str:
    if not steps:
        return ""
    min_ms = sum(step.time.min_ms for step in steps)
    shares = [_share_text(step.share, is_impossible) for step in steps if step.share is not None]
    return f"{min_ms:.3f} ({shares[0]})" if shares else f"{min_ms:.3f}"


def _share_text(share: float | None, is_impossible: bool) -> str:
    """Write a share of the peak, with a mark above 100 % where some share of the table is impossible; - for none."""
    if share is None:
        return "-"
    return f"{share:.0%}{'?' if is_impossible and share > BELIEVED else ''}"
