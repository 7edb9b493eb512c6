# SPDX-License-Identifier: MIT
"""`mpnet run`: evaluate one configuration."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mpnet.backends import backends
from mpnet.backends.partition import ENGINE, check_backends
from mpnet.cli.options import (
    backends_option,
    board_of,
    board_options,
    command_line,
    declare,
    experiment_of,
    log_option,
    set_option,
    unlabelled_option,
    with_unlabelled,
    words,
)
from mpnet.cli.output import NOT_SHOWN, console, note, print_json, progress
from mpnet.errors import ConfigError
from mpnet.formats.documents import typed
from mpnet.report.collect.operating_point import measure_operating_point
from mpnet.report.text.analysis import print_checks
from mpnet.report.text.run import print_run
from mpnet.report.tracking import log_run, open_trackers
from mpnet.trial.experiment import RunReport, run_experiment
from mpnet.trial.verify import verify

if TYPE_CHECKING:
    from mpnet.deploy.board import Board
    from mpnet.deploy.run_on_board import BoardRun
    from mpnet.resolve.shown_budget import ShownBudget


@declare(
    "mpnet run experiments/demo.yaml",
    "mpnet run experiments/demo.yaml --set precision.default=int8 --set 'precision.layers.*/yolo-*=fp16' --json",
    "mpnet run runs/demo/sweep-0123456789ab.sqlite:recommended",
    "mpnet run experiments/demo.yaml --on pi@board",
    runtime=True,
)
@click.argument("source", metavar="EXPERIMENT|RUN|STORE[:KEY]")
@set_option
@unlabelled_option
@log_option
@click.option("--force", is_flag=True, help="Compute again what is finished already.")
@click.option("--no-baseline", is_flag=True, help="Do not run the baseline along; no agreement then.")
@click.option(
    "--engine",
    metavar="NAME",
    help=f"Run the exported configuration in another engine as well, beside mpnet's own: {', '.join(backends())}.",
)
@backends_option
@board_options
@click.option(
    "--require-shown",
    "required",
    metavar="BUDGET",
    help="Exit with 4 unless the loss is shown to be within this: '1 agreement', '0.5 AP', '2 %'; several with commas between.",
)
@click.option("--verify", "check", is_flag=True, help="Check int8 kernels against simulation on the run's own images.")
def command(
    source: str,
    overrides: tuple[str, ...],
    unlabelled: Path | None,
    programs: tuple[str, ...],
    force: bool,
    no_baseline: bool,
    engine: str | None,
    chosen: str | None,
    host: str | None,
    program: Path | None,
    ssh_config: Path | None,
    required: str | None,
    check: bool,
    threads: int | None,
    isa: str | None,
    device: str | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Evaluate the configuration of an EXPERIMENT file and store result.json and detections.json.

    It may be that of an earlier RUN or of a sweep as well: STORE:recommended, STORE:KEY; its protocol and images are taken.

    The same configuration on the same data is not computed twice. When it is not the baseline (fp32 everywhere, unless
    the file says otherwise), the baseline runs along and the result says how far both agree. With --engine the same
    configuration is exported and run by that engine on the same images; its result, which stands beside mpnet's own,
    says in `deployed` how far both are apart and how long each takes. What a detector misses and invents is counted at
    one score threshold: the key detection.deployed, else the one with the best F1 of the baseline. With --backends (or
    the key `backends`) several engines share the layers: each runs those that it supports, the rest falls back to the
    next, mpnet's scalar kernels being the last; every fallback is named. With --verify the exit code is 1 when a kernel
    and its simulation differ by more than docs/arithmetic.md promises. With --require-shown it is 4 where these images do not
    show that the configuration loses no more against its baseline than the budget, at 5 %. With --on a board looks at the same
    images with the same configuration, and figures are computed here from what it finds; the exit code is 1 where that is not
    byte for byte what was found here. Broken off, the same command goes on.
    """
    board = board_of(host, program, ssh_config)
    spec = experiment_of(source, with_unlabelled(overrides, unlabelled), threads, isa, device)
    if no_baseline:
        spec = replace(spec, baseline=None)
    if required is not None:
        from mpnet.resolve.shown_budget import check_budget_text  # brings sweeps

        check_budget_text(required)
    names = words(chosen) if chosen else spec.backends
    if engine is not None and chosen:
        raise ConfigError("--engine is one engine for all layers, --backends several by preference; give one of both")
    check_backends(names)
    other = engine or (None if names[0] == ENGINE else names)
    with open_trackers(programs, spec.name, note) as trackers:
        report = run_experiment(spec, engine=other, force=force, command=command_line(), progress=progress(quiet))
        result = report.deployed or report.result
        if report.reused and not quiet:
            note(f"finished before, taken from {result.folder}; --force computes it again")
        images, checks = verify(report.bench) if check else (0, ())
        point = measure_operating_point(report)
        shown_budget = None if required is None else _check_shown(report, required)
        board_run = None if board is None else _run_on(report, board, program)
        if as_json:
            verified = {"verification": {"images": images, "steps": [asdict(step) for step in checks]}} if check else {}
            deployed = {} if point is None else {"operating_point": point}
            budget = {} if shown_budget is None else {"shown_budget": typed.as_json(shown_budget)}
            there = {} if board_run is None else {"board": board_run.as_json()}
            members = {**verified, **deployed, **budget, **there}
            print_json({**result.document, **members, "folder": str(result.folder), "reused": report.reused})
        else:
            print_run(report.result, report.baseline, console(), report.deployed, point, report.own_baseline)
            if check:
                print_checks(images, checks, console())
            if shown_budget is not None:
                from mpnet.report.text.shown_budget import print_shown_budget

                print_shown_budget(shown_budget, console())
            if board_run is not None:
                from mpnet.report.text.board_run import print_board_run

                print_board_run(board_run, console())
        if trackers:
            page = result.folder.with_name(f"{result.folder.name}.html")
            log_run(trackers, result, trackers.write_page(result.folder, page, progress(quiet)))
    if not all(step.passed for step in checks) or not (board_run is None or board_run.is_same):
        return 1
    return 0 if shown_budget is None or shown_budget.is_shown else NOT_SHOWN


def _run_on(report: RunReport, board: Board, program: Path | None) -> BoardRun:
    from mpnet.deploy.run_on_board import run_on_board

    return run_on_board(report, board, program)


def _check_shown(report: RunReport, budget: str) -> ShownBudget:
    from mpnet.resolve.shown_budget import check_shown

    return check_shown(report, budget)
