# SPDX-License-Identifier: MIT
"""Options that several commands share, and the command class that puts an example into every --help."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import click

from mpnet.cli.output import note
from mpnet.config.limits import MAX_THREADS
from mpnet.config.protocol import DIALECTS
from mpnet.errors import ConfigError
from mpnet.formats.files.atomic import check_writable
from mpnet.formats.files.cache import LIMIT_VARIABLE
from mpnet.messages import nearest, shown
from mpnet.model.precision import PRECISIONS, Precision

if TYPE_CHECKING:
    from mpnet.config.experiment import Experiment
    from mpnet.deploy.board import Board
    from mpnet.resolve.source import Files


PATH, FILE, FOLDER = (
    click.Path(path_type=Path, file_okay=file, dir_okay=folder) for file, folder in ((True, True), (True, False), (False, True))
)
"""Types of options and arguments: any path, no folder, no file."""


class OutputPath(click.Path):
    """A path that a command writes to, which is checked before its work begins."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path. Raises: StoreError where nothing can be written there."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        check_writable(path, is_folder=not self.file_okay)
        return path


OUTPUT_FILE, OUTPUT_FOLDER = (OutputPath(path_type=Path, file_okay=file, dir_okay=not file) for file in (True, False))
"""Types of options that name what is written: a file, a folder."""


class Word(click.Choice[str]):
    """One of some words; a message about another names the nearest."""

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        """Return what is said where the word is missing."""
        return f"known are {', '.join(self.choices)}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word. Raises: click.BadParameter."""
        if value not in self.choices:
            self.fail(f"{shown(value)} is unknown; {nearest(str(value), self.choices)}", param, ctx)
        return str(value)


class ExampleCommand(click.Command):
    """A command whose --help ends with `examples`, one a line."""

    def __init__(self, *args: Any, examples: tuple[str, ...] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples of the command below its help."""
        with formatter.section("Example" if len(self.examples) == 1 else "Examples"):
            for line in self.examples:
                formatter.write(f"{' ' * formatter.current_indent}{line}\n")
        super().format_epilog(ctx, formatter)


JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print the result as one JSON document.")


def _without_cache(context: click.Context, option: click.Parameter, chosen: bool) -> None:
    """Turn the cache off for this command and the processes that it starts."""
    if chosen:
        before = os.environ.get(LIMIT_VARIABLE)
        os.environ[LIMIT_VARIABLE] = "0"
        context.call_on_close(lambda: _restore(LIMIT_VARIABLE, before))


def _restore(variable: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(variable, None)
    else:
        os.environ[variable] = value


QUIET = click.Option(["-q", "--quiet"], is_flag=True, help="Show no progress.")
# Where kernels run. None: as the experiment says, else all cores and the best table.
RUNTIME = (
    click.Option(["--isa"], help="Kernel table, as `mpnet info` lists them.  [default: the best]"),
    click.Option(["--device"], help="Where kernels run: cpu, opencl:N or cuda:N, as `mpnet info` lists it.  [default: cpu]"),
    click.Option(
        ["--threads"], type=click.IntRange(1, MAX_THREADS), help="Threads; changes speed only, never a bit of the result."
    ),
    click.Option(
        ["--no-cache"],
        is_flag=True,
        expose_value=False,
        callback=_without_cache,
        help="Neither use nor keep prepared weights (`mpnet info` says where).",
    ),
)


def declare(
    *examples: str, runtime: bool = False, quiet: bool = True, json: bool = True
) -> Callable[[Callable[..., Any]], ExampleCommand]:
    """Declare a command; `examples` are command lines for its --help.

    runtime, quiet, json: whether it has --isa, --device and --threads, --quiet (no progress on standard error), and --json (the
    result as one JSON document on standard output, and nothing else there).
    """
    context = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

    def made(function: Callable[..., Any]) -> ExampleCommand:
        declared = click.command(cls=ExampleCommand, examples=examples, context_settings=context)(function)
        declared.params += [*(RUNTIME if runtime else ()), *([QUIET] if quiet else ()), *([JSON] if json else ())]
        return declared

    return made


layer_option = click.option(
    "--layer",
    "layers",
    multiple=True,
    metavar="SELECTOR=PRECISION",
    help="Precision of some layers, over the cfg; may be repeated. `mpnet show` prints selectors.",
)
"""--layer SELECTOR=PRECISION, over the cfg; read with `selected_precisions`."""

dialect_option = click.option(
    "--dialect",
    type=click.Choice(DIALECTS),
    default="auto",
    show_default=True,
    help="Whose program's ways to follow where the two Darknet programs differ; auto: by what the cfg uses.",
)
"""--dialect, for commands that take a cfg."""

backends_option = click.option(
    "--backends",
    "chosen",
    metavar="NAME,NAME,...",
    help="Who runs the layers, by preference, such as openvino,mpnet.  [default: as the experiment says, else mpnet]",
)
"""--backends NAME,NAME over the experiment's; read with `words`."""

set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of the file, such as detection.nms=0.5; may be repeated.",
)
"""--set key.key=value over an experiment file; may be repeated."""


unlabelled_option = click.option(
    "--unlabelled",
    type=PATH,
    metavar="PATH",
    help="Images without labels as well (folder, .txt list, video): agreement is measured on them too, AP is not.",
)
"""--unlabelled PATH over the experiment's `data.unlabelled`; put among the overrides with `with_unlabelled`."""


log_option = click.option(
    "--log",
    "programs",
    type=click.Choice(["mlflow", "tensorboard", "wandb"]),
    multiple=True,
    help="Keep parameters, measures and files in this program as well; may be repeated.",
)
"""--log PROGRAM; opened with `report.tracking.open_tracker`."""


def board_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --on, --mprun and --ssh-config; read with `board_of`."""
    for option in (
        click.option("--ssh-config", type=FILE, help="Configuration of ssh, with ports and keys.  [default: the user's]"),
        click.option(
            "--mprun", "program", type=FILE, help="mprun for the board.  [default: what `make mprun-arm` or `make mprun` made]"
        ),
        click.option("--on", "host", metavar="USER@HOST", help="Use this board, by ssh: mprun and a bundle are copied there."),
    ):
        function = option(function)
    return function


def board_of(host: str | None, program: Path | None, ssh_config: Path | None) -> Board | None:
    """Return the board that the options of `board_options` name, None for this machine.

    Raises: ConfigError for what is no host, and for options of a board without one.
    """
    if host is None:
        if program is not None or ssh_config is not None:
            raise ConfigError("--mprun and --ssh-config are of a board; name it with --on USER@HOST")
        return None
    from mpnet.deploy.board import Board

    return Board(host, ssh_config)


def refuse_device(device: str | None) -> None:
    """Check that no device is named beside a board that measures. Raises: ConfigError."""
    if device is not None:
        raise ConfigError("--device: is of this machine; with --on mprun runs on the board's CPU")


def budget_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --max-loss, --max-time and --max-bytes; read with `budgets_of`."""
    for name, help in (
        ("--max-bytes", "Most bytes of weights: 600kB, 2MB, 1.5x (int8's), 30% of the baseline's."),
        ("--max-time", "Most time of an image: 1.2x (int8's time), 3ms, 60% of the baseline's."),
        ("--max-loss", "Most that is lost: '1 agreement', '0.5 AP', '2 %' of the baseline's AP; several with commas between."),
    ):
        function = click.option(name, metavar="BUDGET", help=help)(function)
    return function


def budgets_of(max_loss: str | None, max_time: str | None, max_bytes: str | None) -> dict[str, str]:
    """Return the budgets that the options of `budget_options` name, by option."""
    texts = {"--max-loss": max_loss, "--max-time": max_time, "--max-bytes": max_bytes}
    return {option: text for option, text in texts.items() if text is not None}


def with_unlabelled(overrides: tuple[str, ...], path: Path | None) -> tuple[str, ...]:
    """Return the values of --set and what --unlabelled says, whose path counts from the present folder."""
    return overrides if path is None else (*overrides, f"data.unlabelled={json.dumps(str(path.absolute()))}")


def selected_precisions(layers: tuple[str, ...]) -> dict[str | int, str | Precision]:
    """Return the pairs of --layer. Raises: ConfigError naming the one that is none."""
    chosen: dict[str | int, str | Precision] = {}
    for layer in layers:
        selector, equals, precision = layer.rpartition("=")
        if not equals or not selector or precision not in PRECISIONS:
            raise ConfigError(
                f"--layer {layer[:60]}: is not of the form SELECTOR=PRECISION, such as first=fp32 (precisions are "
                f"{', '.join(PRECISIONS)})"
            )
        chosen[selector] = precision
    return chosen


def experiment_of(
    source: str,
    overrides: tuple[str, ...],
    threads: int | None = None,
    isa: str | None = None,
    device: str | None = None,
    files: Files | None = None,
) -> Experiment:
    """Return the experiment that SOURCE names (EXPERIMENT.yaml, RUN, STORE[:KEY] or NET.cfg).

    What --set, --threads, --isa and --device say is put over it; files: in place of those that it names.
    """
    from mpnet.resolve.source import NO_FILES, experiment_named  # not every command reads one

    experiment, remark = experiment_named(source, files or NO_FILES, overrides)
    if remark:
        note(remark)
    runtime = experiment.runtime
    runtime = replace(runtime, threads=threads or runtime.threads, isa=isa or runtime.isa, device=device or runtime.device)
    return replace(experiment, runtime=runtime)


def cfg_or_experiment(source: str, overrides: tuple[str, ...] = ()) -> Path | Experiment:
    """Return what commands without data take: a cfg as a path, else the experiment that a configuration's name stands for."""
    if Path(source).suffix != ".cfg":
        return experiment_of(source, overrides)
    if overrides:
        raise ConfigError("--set changes an experiment file; with a cfg use --default and --layer")
    return Path(source)


def command_line() -> str:
    """Return what was typed, for the record."""
    return shlex.join(["mpnet", *sys.argv[1:]])


def words(text: str) -> tuple[str, ...]:
    """Return the words of a list with commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())
