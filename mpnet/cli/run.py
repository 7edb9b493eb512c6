"""`mpnet run`: evaluate one configuration."""

from __future__ import annotations

import shlex
import sys
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

import click

from mpnet.cli.options import command as declare
from mpnet.cli.options import json_option, quiet_option, runtime_options, set_option
from mpnet.cli.output import Advance, console, note, print_json, progress
from mpnet.engine.verify import StepCheck
from mpnet.formats.experiment_yaml import read_experiment
from mpnet.report.analysis import print_checks
from mpnet.report.outcome import print_outcome
from mpnet.trial.analysis import verify_experiment
from mpnet.trial.experiment import RunReport, run_experiment


@declare(
    "mpnet run experiments/demo.yaml",
    "mpnet run experiments/demo.yaml --set precision.default=int8 --set 'precision.layers.*/yolo-*=fp16' --json",
)
@click.argument("experiment", type=click.Path(path_type=Path))
@set_option
@click.option("--force", is_flag=True, help="Compute again what is finished already.")
@click.option("--no-baseline", is_flag=True, help="Do not run the baseline along; no agreement then.")
@click.option("--verify", is_flag=True, help="Check int8 kernels against simulation on the run's own pictures.")
@runtime_options
@quiet_option
@json_option
def command(
    experiment: Path, overrides: tuple[str, ...], force: bool, no_baseline: bool, verify: bool, threads: int | None,
    isa: str | None, quiet: bool, as_json: bool,
) -> None:
    """Evaluate the configuration of an EXPERIMENT file and store result.json and detections.json.

    The same configuration on the same data is not computed twice. When it is not the baseline (fp32 everywhere, unless
    the file says otherwise), the baseline runs along and the result says how far both agree. With --verify the exit
    code is 1 when a kernel and its simulation differ by more than docs/arithmetic.md promises.
    """
    spec = read_experiment(experiment, overrides)
    if no_baseline:
        spec = replace(spec, baseline=None)
    runtime = replace(spec.runtime, threads=threads or spec.runtime.threads, isa=isa or spec.runtime.isa)
    spec = replace(spec, runtime=runtime)
    with ExitStack() as stack:
        shown: list[Advance] = []
        report = run_experiment(
            spec, force=force, command=shlex.join(["mpnet", *sys.argv[1:]]),
            started=lambda total: shown.append(stack.enter_context(progress("pictures", total, quiet))),
            advance=lambda count: shown[0](count),
        )
    checks: tuple[int, tuple[StepCheck, ...]] | None = verify_experiment(spec) if verify else None
    _print(report, checks, quiet, as_json)
    if checks is not None and not all(check.passed for check in checks[1]):
        click.get_current_context().exit(1)


def _print(
    report: RunReport, checks: tuple[int, tuple[StepCheck, ...]] | None, quiet: bool, as_json: bool
) -> None:
    steps = [] if checks is None else [asdict(check) for check in checks[1]]
    if report.reused and not quiet:
        note(f"finished before, taken from {report.result.folder}; --force computes it again")
    if as_json:
        verified = {} if checks is None else {"verification": {"images": checks[0], "steps": steps}}
        print_json(
            {**report.result.document, **verified, "folder": str(report.result.folder), "reused": report.reused}
        )
    else:
        print_outcome(report.result, report.baseline, console())
        if checks is not None:
            print_checks(checks[0], steps, console())
