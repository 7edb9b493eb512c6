"""`mpnet compare`: what differs between finished runs."""

from __future__ import annotations

from pathlib import Path

import click

from mpnet.cli.options import command as declare
from mpnet.cli.options import json_option
from mpnet.cli.output import console, print_json
from mpnet.experiments.result import read_result
from mpnet.report.comparison import compare_results, print_comparison


@declare("mpnet compare runs/example-fp32 runs/example-int8", "mpnet compare runs/a/0123456789abcdef runs/b --json")
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...", type=click.Path(path_type=Path))
@json_option
def command(runs: tuple[Path, ...], as_json: bool) -> None:
    """Compare finished runs; the first is the baseline.

    A RUN is a folder runs/<name>/<id>, its result.json, or runs/<name> when that holds one result.
    """
    document = compare_results([read_result(run) for run in runs])
    if as_json:
        print_json(document)
    else:
        print_comparison(document, console())
