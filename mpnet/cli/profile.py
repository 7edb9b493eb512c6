# SPDX-License-Identifier: MIT
"""`mpnet profile`: measure a machine, so that sweeps elsewhere can reckon with its latency."""

from __future__ import annotations

import json
import math
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console

from mpnet.cli.options import OUTPUT_FILE, PATH, board_of, board_options, cfg_or_experiment, declare, refuse_device, words
from mpnet.cli.output import doubt_text, note, print_result, progress
from mpnet.errors import ConfigError
from mpnet.formats.files.atomic import write_text
from mpnet.report.text.latency_table import print_latency_table
from mpnet.speed.latency_table import BOUND_PERCENT, LatencyTable
from mpnet.speed.profile import profile_network


@declare(
    "mpnet profile cfg/yolov3-tiny.cfg -o board.json",
    "mpnet profile cfg/yolov3-tiny.cfg --precisions fp32,fp16,int8 --threads 4 -o board.json",
    "mpnet profile cfg/yolov3-tiny.cfg --on pi@board --threads 4 -o board.json",
    runtime=True,
)
@click.argument("source", metavar="CFG|EXPERIMENT|RUN|STORE[:KEY]")
@click.option("-o", "--output", type=OUTPUT_FILE, required=True, help="The table to write (JSON).")
@click.option("--weights", type=PATH, help="Weights file.  [default: random weights]")
@click.option("--precisions", default="fp32,fp16,int8", show_default=True, help="What layers may have, with commas.")
@board_options
@click.option(
    "--repeats", type=click.IntRange(3, 1000), default=15, show_default=True, help="Forward passes per measured configuration."
)
def command(
    source: str,
    output: Path,
    weights: Path | None,
    precisions: str,
    host: str | None,
    program: Path | None,
    ssh_config: Path | None,
    repeats: int,
    threads: int | None,
    isa: str | None,
    device: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure every step that a configuration of the network CFG can have on this machine.

    Of an EXPERIMENT, a RUN or a sweep its network is measured, quantised as it says (calibrated ranges take other steps).

    The table gives `mpnet sweep` the latency of any configuration (sweep.latency). Whole configurations are measured as
    well and compared with the sum of their steps; the error is printed and stored. While it is too large the table is
    measured again, a few times; exit status 1: it stayed too large, or the board's clock fell meanwhile.

    With --on a board measures, all precisions at once: nothing has to be installed there. Broken off, the same command goes on.
    """
    board = board_of(host, program, ssh_config)
    if board is None:
        table = profile_network(
            cfg_or_experiment(source),
            weights=weights,
            precisions=words(precisions),
            threads=threads,
            isa=isa,
            device=device,
            repeats=repeats,
            progress=progress(quiet),
        )
    else:
        from mpnet.deploy.profile_on_board import profile_on_board

        refuse_device(device)
        if click.get_current_context().get_parameter_source("precisions") is not ParameterSource.DEFAULT:
            raise ConfigError("--precisions: with --on the table holds all of them; leave it out")
        table = profile_on_board(
            cfg_or_experiment(source), board, weights=weights, program=program, threads=threads, isa=isa, repeats=repeats
        )
    write_text(output, json.dumps(table.as_json(), indent=1) + "\n")
    mean = table.errors_percent[0]
    if table.doubt:
        note(doubt_text(table.doubt))
    elif not table.good:
        note(
            f"the machine is too busy: the predictions stay {mean:.1f} % off on average (at most {BOUND_PERCENT:g} % are "
            f"good); sweeps refuse this table unless sweep.latency_error says {math.ceil(mean)} or more"
        )
    print_result({**table.as_json(), "output": str(output)}, as_json, lambda document, out: _print(table, output, out))
    if not table.good:
        raise SystemExit(1)


def _print(table: LatencyTable, output: Path, out: Console) -> None:
    print_latency_table(table, out)
    out.print(f"written to {output}")
