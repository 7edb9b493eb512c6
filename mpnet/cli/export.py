# SPDX-License-Identifier: MIT
"""`mpnet export`: a chosen configuration as files that other programs read."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import click

from mpnet.backends import Model, backend, flavour_here, runner_of
from mpnet.backends.deployment import slower_note
from mpnet.backends.placement import as_plain, placements, warnings_of
from mpnet.cli.options import FILE, declare, set_option
from mpnet.cli.output import console, note, print_json
from mpnet.errors import ConfigError, MpnetError
from mpnet.export import Exported, describe, export, target, target_for, targets
from mpnet.formats.files.atomic import write_files
from mpnet.messages import bytes_text
from mpnet.model.plan_key import short_key
from mpnet.packages import require
from mpnet.report.text.layers import print_placements
from mpnet.resolve.source import Files, configuration_named
from mpnet.resolve.stored import split_source
from mpnet.resolve.trials import TABLES, write_trials


def _target_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of all targets, each by its name."""
    for name, row in targets().items():
        for option in filter(lambda option: option.help, row.options):
            help = f"{name}: {option.help[0].lower()}{option.help[1:]}"
            kind: dict[str, Any] = {"metavar": option.takes, "default": ""} if option.takes else {"is_flag": True}
            function = click.option(option.flag, option.name, help=help, **kind)(function)
    return function


@declare(
    "mpnet export runs/example/0123456789abcdef --to cfg -o mixed.cfg",
    "mpnet export runs/aix/sweep.sqlite:fqqqqqqqhqh --to cfg | diff net.cfg -",
    "mpnet export runs/aix/sweep.sqlite:safe --to yaml",
    "mpnet export experiments/demo.yaml --to onnx --flavour openvino -o demo.onnx",
    "mpnet export runs/aix/sweep.sqlite -o trials.parquet",
    "mpnet export runs/example/0123456789abcdef --to bundle --packed neon_dotprod,neon -o net.mpnet",
    quiet=False,
)
@click.argument("source", metavar="EXPERIMENT|RUN|STORE[:KEY]|CFG")
@click.option(
    "--to",
    "target_name",
    type=click.Choice([*targets(), *TABLES]),
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
    type=FILE,
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
    name = target_for(target_name or "", out)
    chosen = target(name)
    if out is None and chosen.reads_weights:
        raise ConfigError(f"--to {name}: writes {chosen.suffix}, which is no text; name a file with -o")
    named = configuration_named(source, Files(cfg, weights, names), overrides, complete=chosen.reads_weights)
    for line in named.notes:
        note(line)
    configuration = named.configuration
    chose = ""
    if not flavour and len(chosen.flavours) > 1:
        flavour, why = flavour_here(name, chosen.flavours)
        rest = ", ".join(other for other in chosen.flavours if other != flavour)
        chose = f"--flavour {flavour} is taken ({why}); others are {rest}"
    if score is not None:
        from mpnet.report.collect.compare_runs import score_to_deploy  # brings sweeps

        point = score_to_deploy(score, source)
        configuration = replace(configuration, document={**configuration.document, "operating_point": point})
    exported = export(name, configuration, flavour, options)
    files = {} if out is None else exported.beside(out)
    write_files(files)
    model, remark = _opened(name, chosen.flavour(flavour), exported)
    executed = None if model is None else model.executed()
    layers = placements(configuration, exported, executed) if chosen.reads_weights else []
    engine = None if model is None else {"engine": str(runner_of(name, chosen.flavour(flavour))), "version": model.version}
    if engine is not None and executed is not None:
        remark = backend(engine["engine"]).caution(executed)
    times = {}
    if model is not None and engine is not None and not no_time:
        from mpnet.trial.latency import time_exported

        times = time_exported(engine["engine"], configuration, model)
    warnings = warnings_of(layers, engine["engine"] if engine else "")
    if slower := slower_note(engine["engine"] if engine else "", times.get("mix", 0.0), times):
        warnings = [*warnings, slower]
    if as_json:
        print_json(
            {
                "source": source,
                "target": name,
                "flavour": chosen.flavour(flavour),
                "precision": configuration.precisions.key,
                "cfg": str(named.cfg),
                "written": str(out) if out else None,
                "files": {str(path): len(content) for path, content in files.items()},
                "layers": as_plain(layers),
                "executed_by": engine,
                **({"times_ms": times} if times else {}),
                "warnings": [*warnings, *exported.notes],
                **exported.details,
                "text": exported.content.decode("utf-8", "replace") if out is None else None,
            }
        )
    elif out is None:
        sys.stdout.buffer.write(exported.content)
    else:
        if layers:
            print_placements(layers, engine, console())
        console().print(
            f"{short_key(configuration.precisions.key)}: "
            + ", ".join(f"{path} ({bytes_text(len(content))})" for path, content in files.items())
        )
        if times and engine is not None:
            mix, *others = (
                f"{ms:.2f} ms{'' if name == 'mix' else f' with all layers in {name}'}" for name, ms in times.items()
            )
            console().print(f"one image and thread in {engine['engine']}: {', '.join([mix, *others])}")
    for line in filter(None, [chose, *warnings, *exported.notes, remark]):
        note(line)


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


def _opened(name: str, flavour: str, exported: Exported) -> tuple[Model | None, str]:
    """The file in the program that runs it, or why that cannot be asked what it executes."""
    engine = runner_of(name, flavour)
    if engine is None:
        return None, ""
    runner = backend(engine)
    try:
        require(f"asking {engine} what it executes", runner.packages, runner.extra)
        return runner.load(exported, 1), ""
    except MpnetError as error:
        return None, str(error)
