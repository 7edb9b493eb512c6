# SPDX-License-Identifier: MIT
"""`mpnet tune`: win back what a configuration loses, from images without labels."""

from __future__ import annotations

from pathlib import Path

import click

from mpnet.cli.options import OUTPUT_FILE, PATH, command_line, declare, experiment_of, set_option, words
from mpnet.cli.output import console, print_json, progress
from mpnet.report.text.tuning import print_tuning
from mpnet.trial.tune import tune_experiment
from mpnet.trial.tuning_images import TuneOptions
from mpnet.trial.tuning_stages import STAGES

_DEFAULTS = TuneOptions()


@declare(
    "mpnet tune experiments/demo.yaml --set precision.default=int8 --unlabelled images/ -o tuned.yaml",
    "mpnet tune runs/demo:recommended --unlabelled images/ --stages channels -o tuned.yaml --json",
    runtime=True,
)
@click.argument("source", metavar="EXPERIMENT|RUN|STORE[:KEY]")
@set_option
@click.option(
    "--unlabelled",
    type=PATH,
    metavar="PATH",
    required=True,
    help="Images that tune and judge (folder, .txt list, video); none that the experiment evaluates.",
)
@click.option(
    "-o",
    "--output",
    "target",
    type=OUTPUT_FILE,
    metavar="FILE.yaml",
    required=True,
    help="The experiment to write, with FILE.weights and the record FILE.json beside it.",
)
@click.option("--stages", "chosen", metavar="NAME,NAME,...", help=f"Of {', '.join(STAGES)}.  [default: all that can run here]")
@click.option(
    "--images",
    type=click.IntRange(1, 1_000_000),
    default=_DEFAULTS.images,
    show_default=True,
    help="Most images to take, the first ones.",
)
@click.option(
    "--apart",
    type=click.FloatRange(0.05, 0.9),
    default=_DEFAULTS.apart,
    show_default=True,
    help="Share of the images that does not tune and judges what a stage gains.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, 10_000),
    default=_DEFAULTS.minutes,
    show_default=True,
    help="Most wall time of a stage that goes on until it is stopped.",
)
@click.option("--steps", type=click.IntRange(1), help="Most steps of a training.  [default: as many as the minutes have]")
@click.option("--seed", type=click.IntRange(0), default=_DEFAULTS.seed, show_default=True, help="Of everything random.")
def command(
    source: str,
    overrides: tuple[str, ...],
    unlabelled: Path,
    target: Path,
    chosen: str | None,
    images: int,
    apart: float,
    minutes: float,
    steps: int | None,
    seed: int,
    threads: int | None,
    isa: str | None,
    device: str | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Change the weights of a configuration so that it gives again what the fp32 network gave, from images without labels.

    A part of the images tunes, the others are kept apart; each stage is judged there by mpnet's own runs, and kept only where
    the 95 % interval of its gain in agreement with the parent's fp32 lies above 0. What is kept is written as weights of the
    same cfg, with a record of what they were made of and an experiment that runs them beside their parent. Where nothing
    gains, that is said, and nothing is written. Ctrl-C ends a stage and keeps the best so far.
    """
    report = tune_experiment(
        experiment_of(source, overrides, threads, isa, device),
        unlabelled,
        target,
        TuneOptions(words(chosen) if chosen else (), images, apart, minutes, steps, seed),
        command=command_line(),
        progress=progress(quiet),
    )
    if as_json:
        print_json(report.as_json())
    else:
        print_tuning(report, console())
    return 130 if report.is_interrupted else 0
