# SPDX-License-Identifier: MIT
"""`mpnet sweep`: search over precisions."""

from __future__ import annotations

import json
from pathlib import Path

import click

from mpnet.cli.options import (
    PATH,
    budget_options,
    budgets_of,
    command_line,
    declare,
    experiment_of,
    log_option,
    set_option,
    unlabelled_option,
    with_unlabelled,
)
from mpnet.cli.output import console, note, print_result, progress
from mpnet.cli.sweep_view import SweepView
from mpnet.config.limits import MAX_THREADS
from mpnet.errors import ConfigError
from mpnet.formats.documents import typed
from mpnet.report.text.safety import print_forecast
from mpnet.report.text.sweep import print_sweep
from mpnet.report.text.sweep_status import print_salvaged, print_status
from mpnet.report.tracking import SweepLog, open_trackers
from mpnet.sweep.choose.status import sweep_status
from mpnet.sweep.forecast import forecast
from mpnet.sweep.run import SweepStart, run_sweep
from mpnet.sweep.search.state import SweepState
from mpnet.sweep.store.latest import store_at
from mpnet.sweep.store.salvage import salvage as salvage_store

NOTHING_FITS = 1
"""Exit status of a sweep whose limits no configuration meets, or whose budget of loss none is shown to keep."""


@declare(
    "mpnet sweep experiments/demo.yaml",
    "mpnet sweep experiments/demo.yaml --set sweep.strategy=exhaustive --workers 2 --json",
    "mpnet sweep --status runs/demo/sweep-0123456789ab.sqlite",
    runtime=True,
)
@click.argument("experiment", type=PATH, required=False)
@set_option
@unlabelled_option
@log_option
@click.option("--store", type=PATH, help="File that keeps all trials.  [default: under output]")
@click.option(
    "--status", type=PATH, metavar="STORE", help="Print the progress of a sweep, or of the latest one in a folder, then exit."
)
@click.option(
    "--sweep",
    "number",
    type=click.IntRange(1),
    metavar="N",
    help="With --status: which of the store's sweeps.  [default: the last]",
)
@click.option(
    "--salvage",
    type=PATH,
    metavar="STORE",
    help="Write what is readable of a damaged store into a new one, and leave.  [default: STORE-salvaged.sqlite]",
)
@click.option("--workers", type=click.IntRange(1, MAX_THREADS), help="Processes on this machine.  [default: one per thread]")
@click.option("--scheduler", metavar="ADDRESS", help="Dask scheduler whose workers compute, such as tcp://host:8786.")
@budget_options
@click.option(
    "--forecast",
    "only_forecast",
    is_flag=True,
    help="Estimate from a short run how precisely accuracy losses can be measured with these images, then exit.",
)
@click.option("--no-time", is_flag=True, help="Do not measure how long baseline and picks take on this machine.")
@click.option("--yes", is_flag=True, help="Start an exact sweep even if it takes long.")
def command(
    experiment: Path | None,
    overrides: tuple[str, ...],
    unlabelled: Path | None,
    programs: tuple[str, ...],
    store: Path | None,
    status: Path | None,
    number: int | None,
    salvage: Path | None,
    workers: int | None,
    scheduler: str | None,
    max_loss: str | None,
    max_time: str | None,
    max_bytes: str | None,
    only_forecast: bool,
    no_time: bool,
    yes: bool,
    threads: int | None,
    isa: str | None,
    device: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Search over the precisions of an EXPERIMENT file's sweep section; print the front.

    Every finished trial is stored at once: the same command again goes on where it was, several may run at the same
    time, and nothing finished is ever computed twice. Exit status 1: it ended, but nothing meets sweep.constraints, or
    nothing is shown to keep --max-loss. With budgets, what they limit is what the recommended configuration keeps.
    """
    if status is not None:
        print_result(sweep_status(store_at(status) or status, number), as_json, print_status)
        return
    if salvage is not None:
        salvaged = salvage_store(salvage, store or salvage.with_name(f"{salvage.stem}-salvaged.sqlite"))
        print_result(salvaged, as_json, print_salvaged)
        return
    for option, budget in budgets_of(max_loss, max_time, max_bytes).items():
        overrides = (*overrides, f"sweep.{option.removeprefix('--').replace('-', '_')}={json.dumps(budget)}")
    if experiment is None:
        raise ConfigError("name an experiment file, or a store with --status or --salvage")
    spec = experiment_of(str(experiment), with_unlabelled(overrides, unlabelled), threads, isa, device)
    if only_forecast:
        print_result(forecast(spec, progress(quiet)), as_json, print_forecast)
        return
    screen = console(stderr=True)
    with open_trackers(programs, spec.name, lambda message: note(message, screen)) as trackers:
        log = SweepLog(trackers)
        with SweepView(screen, quiet) as view:

            def start(known: SweepStart) -> None:
                view.start(known)
                log.start(known)

            def update(state: SweepState) -> None:
                view.update(state)
                log.update(state)

            result = run_sweep(
                spec,
                store=store,
                workers=workers,
                scheduler=scheduler,
                yes=yes,
                timed=not no_time,
                command=command_line(),
                on_start=start,
                on_update=update,
                progress=view.then(progress(quiet)),
            )
        print_result(typed.as_json(result), as_json, lambda _, out: print_sweep(result, out))
        if trackers:
            page = Path(result.store).with_suffix(".html")
            log.end(result, trackers.write_page(Path(result.store), page, progress(quiet)))
    safety = result.safety
    if result.nearest is not None or (safety is not None and safety.is_asked and safety.safe is None):
        raise SystemExit(NOTHING_FITS)
