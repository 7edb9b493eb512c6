# SPDX-License-Identifier: MIT
"""`mpnet demo`: the main job on the packaged network, by the commands that users have, each printed before it runs."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys
import time
from pathlib import Path
from typing import IO, Any, Iterator, Mapping

import click

from mpnet.cli.main import cli
from mpnet.cli.options import OUTPUT_FOLDER, declare
from mpnet.cli.output import console, print_command, progress
from mpnet.config.measures import measure
from mpnet.demo.project import write_project
from mpnet.formats.documents.typed import build
from mpnet.kernels.environment import cpu_count
from mpnet.messages import number_text, percent_text
from mpnet.packages import program
from mpnet.report.data.sweep_sentences import change_text, images_text, recommendation_text, time_lines, times_of
from mpnet.report.text.sweep import print_choice
from mpnet.report.text.terminal import print_table
from mpnet.sweep.choose.recommend import RECOMMENDED
from mpnet.sweep.result import SweepResult

SCENES = 300
QUICK_SCENES = 40
# What is put over the experiment file; its own precisions are the mixed configuration.
CONFIGURATIONS = {**{name: (f"precision={{default: {name}}}",) for name in ("fp32", "fp16", "int8")}, "mixed": ()}
SAVED = ("bit_operations", "weight_bytes")


@declare("mpnet demo", "mpnet demo --quick --out demo/", json=False)
@click.option("--quick", is_flag=True, help=f"As --scenes {QUICK_SCENES}.")
@click.option(
    "--scenes",
    default=SCENES,
    show_default=True,
    type=click.IntRange(1, 100_000),
    help="How many labelled scenes to evaluate on.",
)
@click.option(
    "--out",
    default="runs/demo",
    show_default=True,
    type=OUTPUT_FOLDER,
    help="Folder for the scenes, the model, the experiment file and the results.",
)
def command(quick: bool, scenes: int, out: Path, quiet: bool) -> None:
    """Show the main job on a small trained detector: what int8 costs, and which layers pay.

    Draws labelled scenes, evaluates the packaged network in fp32, fp16, int8 and mixed precisions, compares these runs,
    looks for the best mixture, writes a report and says what to take. Everything stays
    below --out; demo.yaml there is an experiment file to copy.
    """
    start = time.monotonic()
    scenes = QUICK_SCENES if quick else scenes
    with progress(quiet)("scenes", scenes) as advance:
        project = write_project(out, scenes, lambda done: advance(1), cpu_count())
    _say(
        f"{scenes} labelled scenes, a trained YOLOv3-tiny and {project.experiment} are ready. The commands from here "
        "on are for you to copy; typed, they print more than is shown here."
    )
    experiment = str(project.experiment)
    # An earlier demo in this folder may have left more scenes.
    limit = ("--set", f"data.limit={scenes}") if project.stored > scenes else ()
    hush = ("--quiet",) if quiet else ()
    folders = []
    for name, overrides in CONFIGURATIONS.items():
        changes = [part for value in (f"name={name}", *overrides) for part in ("--set", value)]
        run = _document("run", experiment, *changes, *limit, "--no-baseline", *hush)
        folders.append(run["folder"])
    _print_runs(_document("compare", *folders)["runs"])
    sweep = _document("sweep", experiment, *limit, *hush)
    print_choice(build(SweepResult, sweep), console())
    folder = Path(sweep["store"]).parent
    page = str(out / "report.html")
    _command("report", sweep["store"], "-o", page, *hush)
    _say(f"Done in {time.monotonic() - start:.0f} s. The report is {page}; open it in a browser.")
    for line in decision(build(SweepResult, sweep)):
        console().print(line)
    print_command(f"{program()} {shlex.join(['export', f'{folder}:{RECOMMENDED}', '-o', str(out / 'mixed.cfg')])}")
    if program() != "mpnet":
        _say(f"mpnet is not on PATH here: its commands begin with {program()}.")


def decision(result: SweepResult) -> Iterator[str]:
    """Yield what a sweep recommends, what that costs and saves, and how long it takes; a line each."""
    yield recommendation_text(result)
    row = result.recommended
    if row is None:
        return
    # One set of images for all figures: those that did not choose, where there are any.
    agreement = (row.held_out or row.metrics)["agreement_AP"]
    saved = " and ".join(f"{percent_text(row.saves[name], 0)} of the {measure(name).label}" for name in SAVED)
    yield (
        f"On {images_text(row.losses)} AP changes by {change_text(row.losses)}, and its objects agree with "
        f"fp32's to {agreement:.2f} AP; it saves {saved}."
    )
    times = {name: latency for name, latency in times_of(result).items() if name in ("baseline", RECOMMENDED)}
    yield " ".join([f"It takes {times[RECOMMENDED].median_ms:.2f} ms an image here.", *time_lines(times)])


def _print_runs(runs: list[Mapping[str, Any]]) -> None:
    """Print a line for each run of a comparison, the first of which is the baseline."""
    rows = []
    for run in runs:
        change = run.get("intervals", {}).get("AP")
        changed = "" if change is None else _interval_text(change)
        agreement = f"{100 + run['differences']['agreement_AP']:.2f}" if change else ""
        bits = run["cost"]["bit_operations"] / runs[0]["cost"]["bit_operations"]
        rows.append((run["name"], f"{run['metrics']['AP']:.2f}", changed, agreement, f"{bits:.1%}"))
    print_table(console(), ("run", "AP", "change, 95 % interval", "agreement AP", "bit operations"), rows)


def _interval_text(change: Mapping[str, float]) -> str:
    difference, low, high = (number_text(change[key], signed=True) for key in ("difference", "low", "high"))
    return f"{difference} ({low} to {high})"


def _say(text: str) -> None:
    console().print(text + "\n")


def _document(*arguments: str) -> dict[str, Any]:
    """Run a command and return what it prints with --json."""
    caught = io.StringIO()
    _command(*arguments, json_to=caught)
    document = json.loads(caught.getvalue())
    assert isinstance(document, dict)
    return document


def _command(*arguments: str, json_to: IO[str] | None = None) -> None:
    """Run a command of mpnet as if it had been typed, after showing it."""
    print_command(f"$ {program()} {shlex.join(arguments)}")
    arguments = (*arguments, "--json") if json_to else arguments
    # Results record the command line that made them: the one shown here, not `mpnet demo`.
    typed, sys.argv = sys.argv, ["mpnet", *arguments]
    try:
        with contextlib.redirect_stdout(json_to) if json_to else contextlib.nullcontext():
            cli.main(args=list(arguments), prog_name="mpnet", standalone_mode=False)
    finally:
        sys.argv = typed
