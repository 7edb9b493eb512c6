# SPDX-License-Identifier: MIT
"""`mpnet analyze`: where a configuration loses accuracy."""

from __future__ import annotations

from pathlib import Path

import click

from mpnet.cli.options import OUTPUT_FILE, declare, experiment_of, set_option, unlabelled_option, with_unlabelled
from mpnet.cli.output import print_result, progress
from mpnet.diagnose.analyze import ANALYSIS_IMAGES, KEEP_MACS_PERCENT, analyze_experiment
from mpnet.formats.documents import typed
from mpnet.formats.files.atomic import write_text
from mpnet.report.text.analysis import print_analysis


@declare(
    "mpnet analyze experiments/demo.yaml --set precision.default=int8",
    "mpnet analyze experiments/demo.yaml --set precision.default=int8 --images 32 --csv error.csv --keep-macs 5",
    runtime=True,
)
@click.argument("source", metavar="EXPERIMENT|RUN|STORE[:KEY]")
@set_option
@unlabelled_option
@click.option(
    "--images",
    type=click.IntRange(1, 100_000),
    default=ANALYSIS_IMAGES,
    show_default=True,
    help="Images to run, evenly spread over the data set.",
)
@click.option(
    "--keep-macs",
    type=click.FloatRange(0, 100),
    default=KEEP_MACS_PERCENT,
    show_default=True,
    help="Share of the MACs, in percent, that may be raised to a higher precision.",
)
@click.option(
    "--target",
    "target_name",
    metavar="NAME|FILE",
    help="What will run the choice: only precisions that it runs are proposed. As of `mpnet init`.  [default: the sweep's "
    "target, else the key backends]",
)
@click.option("--rows", type=click.IntRange(1, 100_000), default=24, show_default=True, help="Most rows of a table.")
@click.option("--csv", "csv_path", type=OUTPUT_FILE, help="Write all steps to this file.")
def command(
    source: str,
    overrides: tuple[str, ...],
    unlabelled: Path | None,
    images: int,
    keep_macs: float,
    target_name: str | None,
    rows: int,
    csv_path: Path | None,
    threads: int | None,
    isa: str | None,
    device: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run the configuration of an EXPERIMENT, a RUN or a sweep (STORE:recommended) beside fp32 and list the error of every
    layer and step, worst first.

    Local error is what a step adds when everything before it is fp32, cumulative error what has piled up when the
    configuration runs. The last lines are the given configuration with the layers over it that are worth a higher precision,
    by the agreement with the baseline that was measured on a few images. Where the default quantisation gains more than that, a
    line says so. Remedies stand beside layers with much of the noise.
    """
    report = analyze_experiment(
        experiment_of(source, with_unlabelled(overrides, unlabelled), threads, isa, device),
        images=images,
        keep_macs_percent=keep_macs,
        target=target_name or "",
        progress=progress(quiet),
    )
    if csv_path is not None:
        write_text(csv_path, report.csv())
    document = report.document()
    print_result(typed.as_json(document), as_json, lambda _, out: print_analysis(document, out, rows))
