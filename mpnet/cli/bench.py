# SPDX-License-Identifier: MIT
"""`mpnet bench`: how fast a network runs here, per layer and whole, in every precision."""

from __future__ import annotations

from pathlib import Path

import click

from mpnet.cli.options import PATH, board_of, board_options, cfg_or_experiment, declare, refuse_device, words
from mpnet.cli.output import doubt_text, note, print_result, progress
from mpnet.errors import ConfigError
from mpnet.report.text.bench import print_bench
from mpnet.speed.bench import DEFAULT_PRECISIONS, bench_network, key_of


@declare(
    "mpnet bench cfg/yolov3-tiny.cfg",
    "mpnet bench cfg/yolov3-tiny.cfg --precisions fp32,int8 --threads 1,2 --isa all --json",
    "mpnet bench runs/demo:recommended",
    "mpnet bench cfg/yolov3-tiny.cfg --on pi@board --threads 1,4",
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
@click.option("--device", help="Where kernels run in place of the CPU: opencl:N or cuda:N, as `mpnet info` lists them.")
@board_options
@click.option("--repeats", type=click.IntRange(3, 10000), default=15, show_default=True, help="Passes per measurement.")
def command(
    source: str,
    weights: Path | None,
    precisions: str | None,
    threads: str,
    isa: str,
    device: str | None,
    host: str | None,
    program: Path | None,
    ssh_config: Path | None,
    repeats: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure forward passes of the network CFG: whole and per step, batch 1.

    Of an EXPERIMENT, a RUN or a sweep's configuration (STORE:recommended) its own precisions are measured beside the others,
    quantised as it says; of a CFG ranges are measured on the way. Precisions take turns, pass by pass. Peak is what the
    kernel table's multiply-adds reach in registers on this machine; int8's follows from its best instruction. Winograd
    variants do fewer products and may pass 100 %.

    With --on a board measures, one precision after the other; peaks and what the engine adds are unknown there. Exit status 1:
    its clock fell meanwhile, so the times are not to be believed. Broken off, the same command goes on.
    """
    board = board_of(host, program, ssh_config)
    named = cfg_or_experiment(source)
    names = DEFAULT_PRECISIONS if precisions is None else words(precisions)
    if not isinstance(named, Path) and precisions is None:
        names = (key_of(named), *names)
    if board is None:
        bench = bench_network(
            named,
            weights=weights,
            precisions=names,
            threads=_numbers(threads),
            isa=words(isa),
            device=device,
            repeats=repeats,
            progress=progress(quiet),
        )
    else:
        from mpnet.deploy.bench_on_board import bench_on_board

        refuse_device(device)
        bench = bench_on_board(
            named,
            board,
            weights=weights,
            program=program,
            precisions=names,
            threads=_numbers(threads),
            isa=words(isa),
            repeats=repeats,
        )
    print_result(bench.as_json(), as_json, lambda _, out: print_bench(bench, out))
    if bench.doubt:
        note(doubt_text(bench.doubt))
        raise SystemExit(1)


def _numbers(text: str) -> list[int]:
    try:
        return [int(word) for word in words(text)]
    except ValueError:
        raise ConfigError(f"--threads {text[:40]}: use whole numbers with commas, such as 1,2") from None
