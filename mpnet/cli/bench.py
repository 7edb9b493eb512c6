# SPDX-License-Identifier: MIT
"""`mpnet bench`: how fast a network runs here, per layer and whole, in every precision."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import click
from rich.console import Console

from mpnet.cli.options import PATH, cfg_or_experiment, declare, words
from mpnet.cli.output import print_result, progress
from mpnet.errors import ConfigError
from mpnet.messages import count_text
from mpnet.model.plan_key import short_key
from mpnet.report.text.terminal import print_table
from mpnet.speed.bench import DEFAULT_PRECISIONS, Bench, BenchCase, BenchStep, bench_network, gops, key_of


@declare(
    "mpnet bench cfg/yolov3-tiny.cfg",
    "mpnet bench cfg/yolov3-tiny.cfg --precisions fp32,int8 --threads 1,2 --isa all --json",
    "mpnet bench runs/demo:safe",
)
@click.argument("source", metavar="CFG|EXPERIMENT|RUN|STORE[:KEY]")
@click.option("--weights", type=PATH, help="Weights file.  [default: random weights]")
@click.option(
    "--precisions",
    metavar="NAME,...",
    help="What to measure: precisions, keys such as hqqh, and mixed, which is int8 with the heads in "
    f"fp16.  [default: {','.join(DEFAULT_PRECISIONS)}; before them the configuration named]",
)
@click.option("--threads", default="1", show_default=True, help="Numbers of threads, with commas.")
@click.option("--isa", default="auto", show_default=True, help="Kernel tables, with commas; all: each that runs here.")
@click.option("--repeats", type=click.IntRange(3, 10000), default=15, show_default=True, help="Passes per measurement.")
def command(
    source: str, weights: Path | None, precisions: str | None, threads: str, isa: str, repeats: int, quiet: bool, as_json: bool
) -> None:
    """Measure forward passes of the network CFG: whole and per step, batch 1.

    Of an EXPERIMENT, a RUN or a sweep's configuration (STORE:safe) its own precisions are measured beside the others,
    quantised as it says; of a CFG ranges are measured on the way. Precisions take turns, pass by pass. Peak is what the
    kernel table's multiply-adds reach in registers on this machine; int8's follows from its best instruction. Winograd
    variants do fewer products and may pass 100 %.
    """
    named = cfg_or_experiment(source)
    names = DEFAULT_PRECISIONS if precisions is None else words(precisions)
    if not isinstance(named, Path) and precisions is None:
        names = (key_of(named), *names)
    bench = bench_network(
        named,
        weights=weights,
        precisions=names,
        threads=_numbers(threads),
        isa=words(isa),
        repeats=repeats,
        progress=progress(quiet),
    )
    print_result(bench.as_json(), as_json, lambda document, out: _print(bench, out))


def _numbers(text: str) -> list[int]:
    try:
        return [int(word) for word in words(text)]
    except ValueError:
        raise ConfigError(f"--threads {text[:40]}: use whole numbers with commas, such as 1,2") from None


def _print(bench: Bench, out: Console) -> None:
    for isa, peak in bench.peaks.items():
        out.print(f"{isa}: peak of one thread {2 * peak.fp32:.1f} GFLOP/s in fp32, {2 * peak.int8:.1f} GOP/s in int8")
    columns = ("precision", "min ms", "median ms", "GOP/s", "of peak", "conversions", "engine", "first result")
    for isa, threads in dict.fromkeys((case.isa, case.threads) for case in bench.cases):
        cases = [case for case in bench.cases if (case.isa, case.threads) == (isa, threads)]
        where = f"{isa}, {threads} thread{'s' if threads > 1 else ''}"
        print_table(
            out,
            columns,
            [
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
            ],
            where,
        )
        print_table(
            out,
            ("layer", "MACs", *(short_key(case.precision) for case in cases)),
            _layers(bench, cases),
            f"{where}: ms (share of peak) per layer",
        )
    out.print("conversions and engine: share of a pass; first result: of a configuration that never ran, over a pass of it")


def _layers(bench: Bench, cases: list[BenchCase]) -> Iterator[list[str]]:
    """A row per layer that takes time, with its conversions; a cell per precision."""
    for layer in bench.network.layers:
        parts = [[step for step in case.steps if step.time.step.layer == layer.index] for case in cases]
        if any(parts):
            macs = max((step.macs for part in parts for step in part), default=0)
            yield [f"{layer.index} {layer.name}", count_text(macs) if macs else "", *map(_cell, parts)]


def _cell(steps: list[BenchStep]) -> str:
    if not steps:
        return ""
    taken = sum(step.time.min_ms for step in steps)
    shares = [step.share for step in steps if step.share is not None]
    return f"{taken:.3f} ({shares[0]:.0%})" if shares else f"{taken:.3f}"
