"""`mpnet show`: a network as it would run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from mpnet.backends.partition import partition
from mpnet.cli.options import backends_option, declare, dialect_option, layer_option, selected_precisions, set_option, words
from mpnet.cli.output import console, note, print_json
from mpnet.engine.assign import assign
from mpnet.engine.cost import layer_costs, plan_cost
from mpnet.engine.options import resolve_options
from mpnet.engine.plan import Plan, build_plan
from mpnet.errors import ConfigError
from mpnet.formats.cfg import read_cfg
from mpnet.report.layers import describe_layer, print_layers
from mpnet.spec.experiment import OWN_BACKENDS
from mpnet.spec.precision import PRECISIONS, Precision
from mpnet.spec.quantization import NOTHING_SAID


@declare(
    "mpnet show cfg/yolov3-tiny.cfg",
    "mpnet show cfg/yolov3-tiny.cfg --default int8 --layer first=fp32 --layer '*/yolo-*=fp16'",
    "mpnet show experiments/demo.yaml --json",
    quiet=False,
)
@click.argument("source", metavar="CFG|EXPERIMENT", type=click.Path(path_type=Path))
@click.option("--default", type=click.Choice(list(PRECISIONS)), help="Precision of layers for which the cfg says none.")
@layer_option
@click.option("--steps", is_flag=True, help="List the steps of a forward pass instead of the layers.")
@backends_option
@dialect_option
@set_option
def command(
    source: Path, default: str | None, layers: tuple[str, ...], steps: bool, chosen: str | None, dialect: str,
    overrides: tuple[str, ...], as_json: bool,
) -> None:
    """Show a network's layers: shapes, precision, inserted conversions, MACs, parameters, bytes, totals.

    CFG is a Darknet cfg; with an EXPERIMENT (.yaml) its network is shown with its precisions. Where several backends share
    the layers, who runs each is shown as well, and why a preferred one does not.
    """
    plan, backends = _plan(source, default, layers, overrides, dialect)
    for warning in plan.network.warnings:
        note(warning)
    document = _document(plan)
    names = words(chosen) if chosen else backends
    if names != OWN_BACKENDS:
        found = partition(plan.network, plan.precision, plan.options, names)
        for row in document["layers"]:
            row["backend"] = found.who(row["index"])
        for line in found.reasons.values():
            note(line)
    if as_json:
        print_json(document)
    elif steps:
        console().print(plan.text())
    else:
        print_layers(document, console())


def _plan(
    source: Path, default: str | None, layers: tuple[str, ...], overrides: tuple[str, ...], dialect: str
) -> tuple[Plan, tuple[str, ...]]:
    """The plan, and who is to run it."""
    cfg, batch_norm, said = source, "auto", dict[str | int, Precision | str]()
    quantization: tuple[Any, ...] = (NOTHING_SAID, ())
    backends = OWN_BACKENDS
    if source.suffix in (".yaml", ".yml"):
        from mpnet.formats.experiment_yaml import read_experiment  # a cfg does without

        experiment = read_experiment(source, overrides)
        cfg, batch_norm = experiment.model.cfg, experiment.model.batch_norm
        dialect = experiment.model.dialect if dialect == "auto" else dialect
        default, said = default or experiment.precision.default, dict(experiment.precision.layers)
        quantization = (experiment.quantization.options, experiment.quantization.layers)
        backends = experiment.backends
    elif overrides:
        raise ConfigError("--set changes an experiment file; with a cfg use --default and --layer")
    network = read_cfg(cfg, dialect)
    options = resolve_options(network, *quantization, batch_norm=batch_norm)
    # Stand-ins for calibrated ranges: the table needs to know that there is a conversion, not what its range is.
    options = replace(options, ranges={index: (0.0, 1.0) for index in range(-1, len(network.layers))})
    return build_plan(network, assign(network, default, {**said, **selected_precisions(layers)}), options), backends


def _document(plan: Plan) -> dict[str, Any]:
    network = plan.network
    rows = [row | {"detail": describe_layer(network.layers[row["index"]])} for row in layer_costs(plan)]
    return {
        "cfg": network.source,
        "digest": network.digest,
        "dialect": {"name": network.dialect, "why": network.dialect_why, "batch_norm": plan.options.batch_norm},
        "input": list(network.in_shape),
        "precision_key": plan.precision.key,
        "layers": rows,
        "totals": {
            **plan_cost(plan),
            "parameters": network.parameters,
            "conversions": sum(len(row["conversions"]) for row in rows),
        },
        "warnings": list(network.warnings),
    }
