# SPDX-License-Identifier: MIT
"""`mpnet compare`: what differs between finished runs, and whether the difference is real."""

from __future__ import annotations

from pathlib import Path

import click

from mpnet.cli.options import OUTPUT_FOLDER, declare, unlabelled_option
from mpnet.cli.output import note, print_result, progress
from mpnet.errors import ConfigError
from mpnet.evaluation.compare import DRAWS, MAX_DRAWS, MIN_DRAWS
from mpnet.report.collect.compare_runs import compare_runs
from mpnet.report.collect.comparison import check_limits
from mpnet.report.text.comparison import print_comparison


@declare(
    "mpnet compare runs/example-fp32 runs/example-int8 --images lost/",
    "mpnet compare runs/a/0123456789abcdef runs/b --fail-under AP=-0.5 --json",
    "mpnet compare sweep.sqlite:baseline sweep.sqlite:fqqqqqqqhqh",
)
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...")
@click.option(
    "--images",
    "--pictures",  # its name in 0.1.0
    "images",
    type=OUTPUT_FOLDER,
    metavar="DIR",
    help="Write an image of each lost or gained object: baseline left, other run right.",
)
@click.option(
    "--draws", default=DRAWS, show_default=True, type=click.IntRange(MIN_DRAWS, MAX_DRAWS), help="Bootstrap draws over images."
)
@click.option(
    "--score",
    type=click.FloatRange(0, 1),
    help="Score threshold at which a detector's errors are counted.  [default: the best F1 of the first run]",
)
@unlabelled_option
@click.option("--seed", default=0, show_default=True, help="Seed of the draws.")
@click.option(
    "--fail-under",
    "limits",
    multiple=True,
    metavar="METRIC=DIFFERENCE",
    help="Exit with 1 when a run differs by less, such as AP=-0.5; may be repeated.",
)
def command(
    runs: tuple[str, ...],
    images: Path | None,
    draws: int,
    score: float | None,
    unlabelled: Path | None,
    seed: int,
    limits: tuple[str, ...],
    quiet: bool,
    as_json: bool,
) -> int:
    """Compare finished runs, or configurations of a sweep; the first is the baseline.

    A RUN is a folder runs/<name>/<id>, its result.json, runs/<name> for its latest result, or STORE:KEY for a
    configuration of a sweep (its precision string, `baseline` or `chosen`). Differences come with paired 95 %
    intervals over images: one whose interval contains zero is within noise. Agreement, which cannot exceed the baseline's,
    has an interval and no verdict. With --unlabelled runs run again, on these images as well.
    """
    wanted = _limits(limits)
    comparison = compare_runs(
        runs, draws=draws, seed=seed, images=images, score=score, unlabelled=unlabelled, progress=progress(quiet)
    )
    broken = check_limits(comparison, wanted)
    document = {**comparison.document, "failed": broken}
    print_result(document, as_json, lambda _, console: print_comparison(comparison, console))
    if images is not None and not any(run.changes for run in comparison.runs):
        note(f"{images}: nothing was lost or gained, so that no image was drawn")
    for line in broken:
        note(f"below the limit: {line}")
    return 1 if broken else 0


def _limits(texts: tuple[str, ...]) -> dict[str, float]:
    limits = {}
    for text in texts:
        name, equals, number = text.partition("=")
        try:
            limits[name] = float(number)
        except ValueError:
            equals = ""
        if not equals or limits[name] != limits[name]:
            raise ConfigError(f"--fail-under {text!r}: write METRIC=DIFFERENCE, such as AP=-0.5")
    return limits
