# SPDX-License-Identifier: MIT
"""Times of a network's passes and layers as tables."""

from __future__ import annotations

from typing import Iterator, Sequence

from rich.console import Console

from mpnet.messages import count_text
from mpnet.model.plan_key import short_key
from mpnet.report.text.terminal import print_table
from mpnet.speed.bench import Bench, BenchCase, BenchStep, gops


def print_bench(bench: Bench, console: Console) -> None:
    """Print for each ISA level and number of threads the passes by precision, and the layers."""
    for isa, peak in bench.peaks.items():
        console.print(f"{isa}: peak of one thread {2 * peak.fp32:.1f} GFLOP/s in fp32, {2 * peak.int8:.1f} GOP/s in int8")
    for isa, threads in dict.fromkeys((case.isa, case.threads) for case in bench.cases):
        cases = [case for case in bench.cases if (case.isa, case.threads) == (isa, threads)]
        machine = f"{isa}, {threads} thread{'s' if threads > 1 else ''}"
        _print_passes(cases, machine, console)
        headings = ("layer", "MACs", *(short_key(case.precision) for case in cases))
        print_table(console, headings, _layer_rows(bench, cases), f"{machine}: ms (share of peak) per layer")
    console.print("conversions and engine: share of a pass; first result: of a configuration that never ran, over a pass of it")


def _print_passes(cases: Sequence[BenchCase], machine: str, console: Console) -> None:
    headings = ("precision", "min ms", "median ms", "GOP/s", "of peak", "conversions", "engine", "first result")
    rows = [
        [
            short_key(case.precision),
            f"{case.min_ms:.2f}",
            f"{case.median_ms:.2f}",
            f"{gops(case.macs, case.min_ms):.1f}",
            f"{case.share:.0%}",
            f"{case.conversions_ms / case.median_ms:.1%}",
            f"{case.overhead_ms / case.median_ms:.1%}",
            f"{case.first_result:.2f}x",
        ]
        for case in cases
    ]
    print_table(console, headings, rows, machine)


def _layer_rows(bench: Bench, cases: Sequence[BenchCase]) -> Iterator[list[str]]:
    """Yield a row per layer that takes time, with its conversions; a cell per precision."""
    for layer in bench.network.layers:
        steps_of_cases = [[step for step in case.steps if step.time.step.layer == layer.index] for case in cases]
        if any(steps_of_cases):
            macs = max((step.macs for steps in steps_of_cases for step in steps), default=0)
            yield [f"{layer.index} {layer.name}", count_text(macs) if macs else "", *map(_time_text, steps_of_cases)]


def _time_text(steps: Sequence[BenchStep]) -> str:
    if not steps:
        return ""
    min_ms = sum(step.time.min_ms for step in steps)
    shares = [step.share for step in steps if step.share is not None]
    return f"{min_ms:.3f} ({shares[0]:.0%})" if shares else f"{min_ms:.3f}"
