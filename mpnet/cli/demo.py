"""`mpnet demo`: the main job on the packaged network, by the commands that users have, each printed before it runs."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import shlex
import time
from pathlib import Path
from typing import Any

import click

from mpnet.cli.options import command as declare
from mpnet.cli.options import quiet_option
from mpnet.cli.output import console, progress
from mpnet.demo.project import write_project
from mpnet.experiments.environment import cpu_count

SCENES = 300
QUICK_SCENES = 60
# What is put over the experiment file; its own precisions are the mixed configuration.
CONFIGURATIONS: dict[str, tuple[str, ...]] = {
    "fp32": ("precision={default: fp32}",),
    "fp16": ("precision={default: fp16}",),
    "int8": ("precision={default: int8}",),
    "mixed": (),
}


@declare("mpnet demo", "mpnet demo --quick --out demo/")
@click.option("--quick", is_flag=True, help=f"{QUICK_SCENES} scenes instead of {SCENES}.")
@click.option("--out", default="runs/demo", show_default=True, type=click.Path(path_type=Path, file_okay=False),
              help="Folder for the scenes, the model, the experiment file and the results.")
@quiet_option
def command(quick: bool, out: Path, quiet: bool) -> None:
    """Show the main job on a small trained detector: what int8 costs, and which layers pay.

    Draws labelled scenes, evaluates the packaged network in fp32, fp16, int8 and mixed precisions, compares these runs,
    ranks the layers one at a time and writes a report. Everything stays below --out; demo.yaml there is an experiment
    file to copy.
    """
    start = time.monotonic()
    scenes = QUICK_SCENES if quick else SCENES
    with progress("scenes", scenes, quiet) as advance:
        project = write_project(out, scenes, lambda done: advance(1), cpu_count())
    _say(f"{scenes} labelled scenes, a trained YOLOv3-tiny and {project.experiment} are ready. The commands from here "
         "on are for you to copy.")
    experiment = str(project.experiment)
    limit = ("--set", f"data.limit={scenes}") if quick else ()
    hush = ("--quiet",) if quiet else ()
    folders = []
    for name, overrides in CONFIGURATIONS.items():
        changes = [part for value in (f"name={name}", *overrides) for part in ("--set", value)]
        run = _document("run", experiment, *changes, *limit, "--no-baseline", *hush)
        folders.append(_short(run["folder"]))
    _command("compare", *folders)
    sweep = _document("sweep", experiment, *limit, *hush)
    page = str(out / "report.html")
    _command("report", _short(sweep["store"]), "-o", page, *hush)
    _say(f"Done in {time.monotonic() - start:.0f} s. The report is {page}; open it in a browser.")


def _short(path: str) -> str:
    """A path without the detours that an experiment's relative paths leave in it."""
    whole, here = Path(path).resolve(), Path.cwd()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)


def _say(text: str) -> None:
    console().print(text)
    console().print()


def _command(*arguments: str) -> None:
    """Run a command of mpnet as if it had been typed, after showing it."""
    console().print(f"$ {shlex.join(['mpnet', *arguments])}", style="bold")
    found = importlib.import_module(f"mpnet.cli.{arguments[0]}").command
    found.main(args=list(arguments[1:]), prog_name=f"mpnet {arguments[0]}", standalone_mode=False)


def _document(*arguments: str) -> dict[str, Any]:
    """What a command prints with --json."""
    caught = io.StringIO()
    console().print(f"$ {shlex.join(['mpnet', *arguments])}", style="bold")
    found = importlib.import_module(f"mpnet.cli.{arguments[0]}").command
    with contextlib.redirect_stdout(caught):
        found.main(args=[*arguments[1:], "--json"], prog_name=f"mpnet {arguments[0]}", standalone_mode=False)
    document = json.loads(caught.getvalue())
    assert isinstance(document, dict)
    return document
