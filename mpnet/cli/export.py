# SPDX-License-Identifier: MIT
"""`mpnet export`: a chosen configuration as files that other programs read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Callable

import click

from mpnet.cli.options import FILE, OUTPUT_FILE, Word, declare, set_option
from mpnet.cli.output import console, note, print_json
from mpnet.deploy import ExportReport, export_source
from mpnet.errors import ConfigError
from mpnet.export import columns, describe, targets
from mpnet.json_values import JsonObject
from mpnet.messages import bytes_text
from mpnet.model.plan_key import short_key
from mpnet.report.text.layers import print_placements
from mpnet.resolve.source import Files
from mpnet.resolve.stored import split_source
from mpnet.resolve.trials import TABLES, write_trials


def _target_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of all targets, each by its name."""
    for name, row in targets().items():
        for option in filter(lambda option: option.help, row.options):
            help = f"{name}: {option.help[0].lower()}{option.help[1:]}"
            kind: dict[str, Any] = {"metavar": option.metavar, "default": ""} if option.metavar else {"is_flag": True}
            function = click.option(option.flag, option.name, help=help, **kind)(function)
    return function


@declare(
    "mpnet export runs/example/0123456789abcdef --to cfg -o mixed.cfg",
    "mpnet export runs/aix/sweep.sqlite:fqqqqqqqhqh --to cfg | diff net.cfg -",
    "mpnet export runs/aix/sweep.sqlite:recommended --to yaml",
    "mpnet export experiments/demo.yaml --to onnx --flavour openvino -o demo.onnx",
    "mpnet export runs/aix/sweep.sqlite -o trials.parquet",
    "mpnet export runs/example/0123456789abcdef --to bundle --packed neon_dotprod,neon -o net.mpnet",
    quiet=False,
)
@click.argument("source", metavar="EXPERIMENT|RUN|STORE[:KEY]|CFG")
@click.option(
    "--to",
    "target_name",
    type=Word([*dict.fromkeys([*targets(), *columns(targets()), *TABLES])]),
    metavar="TARGET[/FLAVOUR]",
    help=f"What to write.  [default: what the suffix of -o says] {describe(targets())}; parquet, csv: all trials of a STORE.",
)
@click.option(
    "--flavour",
    default="",
    metavar="NAME",
    help="For which program, where a target has several; `mpnet targets` lists them.  [default: the first that is here]",
)
@_target_options
@click.option("--cfg", type=FILE, help="The network file to change.  [default: the one that was measured]")
@click.option(
    "--weights", type=FILE, help="The weights, where they have moved.  [of a CFG: the file beside it with the suffix .weights]"
)
@click.option("--names", type=FILE, help="The class names, where they have moved.")
@click.option(
    "--score",
    metavar="NUMBER|recall",
    help="Write the score threshold to deploy with into the file; recall: the one that finds as many objects of a RUN's or "
    "sweep's images as the baseline does with its own.",
)
@click.option("--no-time", is_flag=True, help="Do not measure how long the program that runs the file takes here.")
@set_option
@click.option(
    "-o",
    "--out",
    type=OUTPUT_FILE,
    help="The file to write; further files of a target stand beside it.  [default: standard output, for cfg, yaml]",
)
def command(
    source: str,
    target_name: str | None,
    flavour: str,
    cfg: Path | None,
    weights: Path | None,
    names: Path | None,
    score: str | None,
    no_time: bool,
    overrides: tuple[str, ...],
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write a configuration in the form of another program.

    It may be that of an experiment file, a run, a sweep's trial (KEY is a precision string, `chosen`, when absent, or
    `baseline`) or a network file. `cfg` is mpnet's own form: comments and everything else stay; only precision keys that
    differ change, so that `diff` shows the decision.

    For the others the program that runs the file, where it is installed, is asked which precision it really executes in
    each layer; a layer that falls back is a warning. So is a mix that takes longer there than all layers in fp32.
    """
    form = target_name or ("" if out is None else out.suffix[1:])
    if form in TABLES:
        _write_table(source, form, out, as_json)
        return

    def find_operating_point() -> JsonObject:
        from mpnet.report.collect.compare_runs import score_to_deploy  # brings sweeps

        return score_to_deploy(score or "", source)

    report = export_source(
        source,
        out,
        to=target_name or "",
        flavour=flavour,
        options=options,
        files=Files(cfg, weights, names),
        overrides=overrides,
        find_operating_point=None if score is None else find_operating_point,
        is_timed=not no_time,
        on_note=note,
    )
    if as_json:
        print_json(report.as_json())
    elif out is None:
        sys.stdout.buffer.write(report.exported.content)
    else:
        _print_report(report)
    for line in report.notes:
        note(line)


def _print_report(report: ExportReport) -> None:
    """Print where layers run, the files, and how long the engine takes."""
    if report.layers:
        print_placements(report.layers, report.executed_by, console())
    files = ", ".join(f"{path} ({bytes_text(size)})" for path, size in report.files.items())
    console().print(f"{short_key(report.precision)}: {files}")
    if report.times_ms:
        mix, *others = (
            f"{ms:.2f} ms{'' if name == 'mix' else f' with all layers in {name}'}" for name, ms in report.times_ms.items()
        )
        console().print(f"one image and thread in {report.engine}: {', '.join([mix, *others])}")


def _write_table(source: str, form: str, out: Path | None, as_json: bool) -> None:
    if out is None:
        raise ConfigError(f"--to {form}: name a file with -o, such as -o trials.{form}")
    path, sweep = split_source(source)
    if sweep is not None and not sweep.isdecimal():
        raise ConfigError(f"{source}: a table is of all trials; name {path}, or {path}:2 for its second sweep")
    count = write_trials(path, out, form, None if sweep is None else int(sweep))
    if as_json:
        print_json({"source": source, "target": form, "written": str(out), "trials": count})
    else:
        console().print(f"{out}: {count:,} trials ({bytes_text(out.stat().st_size)})", soft_wrap=True)
