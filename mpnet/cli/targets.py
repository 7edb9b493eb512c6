# SPDX-License-Identifier: MIT
"""`mpnet targets`: what can be exported to what."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Sequence

import click

from mpnet.backends import backends
from mpnet.cli.options import declare
from mpnet.cli.output import console, print_json
from mpnet.config.target_file import TargetFile
from mpnet.errors import ConfigError
from mpnet.export import columns, targets
from mpnet.export.table import support_table
from mpnet.formats.documents.target_file import bundled_target, is_path, target_file, target_names
from mpnet.json_values import Json
from mpnet.packages import version_of
from mpnet.report.text.targets import print_operations, print_target_file, print_target_files, print_targets


@dataclass(frozen=True)
class _Engine:
    """An engine of `mpnet run --engine`. mode: its settings. packages: that it needs, with the version that is installed."""

    what: str
    target: str
    flavour: str
    mode: dict[str, Json]
    packages: dict[str, str | None]
    extra: str


@declare(
    "mpnet targets",
    "mpnet targets tflite",
    "mpnet targets onnx/openvino ncnn",
    "mpnet targets esp-ppq",
    "mpnet targets --json",
    quiet=False,
)
@click.argument("names", metavar="[TARGET[/FLAVOUR]|TARGET FILE]...", nargs=-1)
def command(names: tuple[str, ...], as_json: bool) -> None:
    """Show what `mpnet export` can write, and which operations each target can express at which precision.

    Without a name: a line for each target, for each target file, and the engines of `mpnet run --engine`. With names: operation
    by operation, and why not; of a target file, by its name or path, what it says.
    """
    known = targets()
    rows, every = support_table(known), list(columns(known))
    files = [bundled_target(name) for name in target_names()]
    named_files = [target_file(name) for name in names if is_path(name) or name in target_names()]
    engines = {
        name: _Engine(
            row.what,
            row.target,
            row.flavour,
            dict(row.mode),
            {package.partition(">=")[0]: version_of(package.partition(">=")[0]) for package in row.packages},
            row.extra,
        )
        for name, row in backends().items()
    }
    if as_json:
        print_json(
            {
                "targets": {
                    name: {
                        "what": row.what,
                        "suffix": row.suffix,
                        "flavours": list(row.flavours),
                        "options": [option.name for option in row.options],
                    }
                    for name, row in known.items()
                },
                "support": [row.__dict__ for row in rows],
                "engines": {name: asdict(engine) for name, engine in engines.items()},
                "target_files": {file.name: _as_json(file) for file in (*files, *named_files)},
            }
        )
        return
    out = console()
    if names:
        for file in named_files:
            print_target_file(file, out)
        columns_named = _named(
            [name for name in names if name not in {file.name for file in named_files} or name in every], every
        )
        if columns_named:
            print_operations(rows, columns_named, out)
        return
    print_targets(known, rows, out)
    print_target_files(files, out)
    for name, engine in engines.items():
        there = ", ".join(f"{package} {version or 'not installed'}" for package, version in engine.packages.items())
        out.print(
            f"engine {name}: {engine.what}; runs {engine.target}"
            f"{'/' + engine.flavour if engine.flavour else ''}; {there or 'nothing to install'}"
        )
    out.print("A target's name is what mpnet export --to takes; an engine's is for mpnet run --engine.")
    out.print("mpnet targets NAME shows which operations a target can express at which precision, and why not.")


def _as_json(file: TargetFile) -> dict[str, Json]:
    return {**asdict(file), "quantization": file.quantization.plain_values()}


def _named(names: Sequence[str], every: Sequence[str]) -> list[str]:
    """Return the columns that were asked for; a target stands for all its flavours.

    Raises: ConfigError for one that is not there.
    """
    chosen: list[str] = []
    for name in names:
        meant = [column for column in every if name in (column, column.partition("/")[0])]
        if not meant:
            raise ConfigError(f"unknown target '{name}'; known are {', '.join(every)}")
        chosen += [column for column in meant if column not in chosen]
    return chosen
