# SPDX-License-Identifier: MIT
"""`mpnet show`: a network as it would run."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import click

from mpnet.backends.partition import partition
from mpnet.cli.options import (
    OUTPUT_FILE,
    backends_option,
    cfg_or_experiment,
    declare,
    dialect_option,
    layer_option,
    selected_precisions,
    set_option,
    words,
)
from mpnet.cli.output import console, note, print_json
from mpnet.config.experiment import OWN_BACKENDS, RuntimeSection
from mpnet.engine.assign import assign
from mpnet.engine.cost import layer_costs, plan_cost
from mpnet.engine.devices import open_runtime
from mpnet.engine.operations import Transfer
from mpnet.engine.options import resolve_options, with_some_ranges
from mpnet.engine.placement import place_plan
from mpnet.engine.plan import Plan, build_plan
from mpnet.errors import ConfigError
from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.documents import typed
from mpnet.formats.files.atomic import write_text
from mpnet.model.precision import PRECISIONS, Precision
from mpnet.report.data.shown_network import Dialect, ShownLayer, ShownNetwork
from mpnet.report.text.layers import describe_layer, print_layers
from mpnet.report.text.terminal import print_table


@declare(
    "mpnet show cfg/yolov3-tiny.cfg",
    "mpnet show cfg/yolov3-tiny.cfg --default int8 --layer first=fp32 --layer '*/yolo-*=fp16'",
    "mpnet show experiments/demo.yaml --json",
    "mpnet show runs/demo:recommended --graph --measure -o net.html",
    quiet=False,
)
@click.argument("source", metavar="CFG|EXPERIMENT|RUN|STORE[:KEY]")
@click.option("--default", type=click.Choice(list(PRECISIONS)), help="Precision of layers for which the cfg says none.")
@layer_option
@click.option("--steps", is_flag=True, help="List the steps of a forward pass instead of the layers.")
@click.option(
    "--source", "names_of_source", is_flag=True, help="List the nodes of the ONNX file that each layer was imported from."
)
@click.option("--graph", is_flag=True, help="Draw the network with its precisions into the file of -o.")
@click.option("-o", "--out", type=OUTPUT_FILE, help="With --graph: the drawing, .html or .svg, or .json for Model Explorer.")
@click.option(
    "--measure", is_flag=True, help="With --graph: time and error of each layer as well, on some of the experiment's images."
)
@backends_option
@click.option("--device", help="With --steps: as a device runs it, with the transfers; cpu, opencl:N or cuda:N.")
@dialect_option
@set_option
def command(
    source: str,
    default: str | None,
    layers: tuple[str, ...],
    steps: bool,
    names_of_source: bool,
    graph: bool,
    out: Path | None,
    measure: bool,
    chosen: str | None,
    device: str | None,
    dialect: str,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show a network's layers: shapes, precision, inserted conversions, MACs, parameters, bytes, totals.

    CFG is a Darknet cfg; of an EXPERIMENT (.yaml), a RUN or a sweep's configuration (STORE:recommended) the network is shown
    with its precisions. Where several backends share the layers, who runs each is shown as well, and why a preferred one does
    not.
    """
    plan, backends, runtime = _plan(source, default, layers, overrides, dialect)
    for warning in plan.network.warnings:
        note(warning)
    shown = _show(plan)
    if device is not None or steps:
        plan = _placed(plan, replace(runtime, device=device or runtime.device))
    if graph:
        _draw(plan, out, measure, source, overrides)
        if not as_json:
            console().print(f"{out}: {len(shown.layers)} layers")
            return
    elif out is not None or measure:
        raise ConfigError("-o and --measure belong to --graph, which draws the network")
    names = words(chosen) if chosen else backends
    if names != OWN_BACKENDS:
        parts = partition(plan.network, plan.precision, plan.options, names)
        shown = replace(shown, layers=tuple(replace(row, backend=parts.backend_of(row.index)) for row in shown.layers))
        for line in parts.reasons.values():
            note(line)
    if names_of_source:
        sources = [layer.source for layer in plan.network.layers]
        shown = replace(shown, layers=tuple(replace(row, source=tuple(sources[row.index])) for row in shown.layers))
    if as_json:
        print_json(typed.as_json(shown))
    elif names_of_source:
        rows = [(row.index, row.name, " ".join(row.source or ())) for row in shown.layers]
        print_table(console(), ("#", "layer", "nodes of the imported file"), rows, left=(1, 2), fold=(2,))
    elif steps:
        console().print(plan.text())
    else:
        print_layers(shown, console())


def _placed(plan: Plan, runtime: RuntimeSection) -> Plan:
    """Return the plan as a device runs it, and say what moves and what stays on the CPU."""
    placed = place_plan(plan, open_runtime(runtime))
    if placed is not plan:
        targets = Counter(step.operation.target for step in placed.steps if isinstance(step.operation, Transfer))
        note(f"transfers: {', '.join(f'{count} to {target}' for target, count in targets.items())}")
    return placed


def _plan(
    source: str, default: str | None, layers: tuple[str, ...], overrides: tuple[str, ...], dialect: str
) -> tuple[Plan, tuple[str, ...], RuntimeSection]:
    """Return the plan, the backends that are to run it, and where mpnet's own kernels run."""
    named = cfg_or_experiment(source, overrides)
    declared = dict[str | int, Precision | str]()
    backends, runtime = OWN_BACKENDS, RuntimeSection()
    if isinstance(named, Path):
        network = read_cfg(named, dialect)
        options = resolve_options(network)
    else:
        model, quantization = named.model, named.quantization
        network = read_cfg(model.cfg, model.dialect if dialect == "auto" else dialect)
        options = resolve_options(network, quantization.options, quantization.layers, batch_norm=model.batch_norm)
        default, declared = default or named.precision.default, dict(named.precision.layers)
        backends, runtime = named.backends, named.runtime
    options = with_some_ranges(options, network)
    return (
        build_plan(network, assign(network, default, {**declared, **selected_precisions(layers)}), options),
        backends,
        runtime,
    )


def _draw(plan: Plan, out: Path | None, measure: bool, source: str, overrides: tuple[str, ...]) -> None:
    if out is None or out.suffix not in (".html", ".svg", ".json"):
        raise ConfigError(
            "--graph: name the file to draw with -o, such as -o net.html, net.svg or, for Model Explorer, net.json"
        )
    times, errors = dict[int, float](), dict[int, float]()
    if measure:
        named = cfg_or_experiment(source, overrides)
        if isinstance(named, Path):
            raise ConfigError(f"--measure: {source} names no images; name an experiment, a run or a sweep's configuration")
        from mpnet.report.collect.rerun import NetworkRunner  # `show` alone runs nothing
        from mpnet.trial.experiment import open_workbench

        machine = NetworkRunner(open_workbench(named))
        costs, doubt = machine.costs(plan.precision.key, plan.precision.key)
        times = {cost.index: cost.chosen_ms for cost in costs}
        if doubt:
            note(f"times are unreliable: {doubt}; the same command takes them again")
        if any(precision.base != "fp32" for precision in plan.precision.precisions):
            errors = {error.index: error.sqnr_db for error in machine.errors(plan.precision.key)}
    if out.suffix == ".json":
        from mpnet.report.model_explorer import write_graph

        write_graph(plan.network, layer_costs(plan), out, times, errors)
        return
    from mpnet.report.html.graph import draw_graph, graph_page  # brings what figures need

    drawing = draw_graph(plan.network, layer_costs(plan), times, errors)
    write_text(out, graph_page(str(plan.network.source), drawing) if out.suffix == ".html" else drawing)


def _show(plan: Plan) -> ShownNetwork:
    network, costs = plan.network, layer_costs(plan)
    coded = [(index, plan.precision[index]) for index in plan.precision.weighted if plan.precision[index].carries_scale]
    granularities = [plan.options.of(index).rounded_to(precision)[0].granularity for index, precision in coded]
    values = [{field.name: getattr(row, field.name) for field in fields(row)} for row in costs]
    return ShownNetwork(
        cfg=network.source,
        digest=network.digest,
        dialect=Dialect(network.dialect, network.dialect_why, plan.options.batch_norm),
        input=tuple(network.in_shape),
        precision_key=plan.precision.key,
        layers=tuple(ShownLayer(**row, detail=describe_layer(network.layers[row["index"]])) for row in values),
        totals={**plan_cost(plan), "parameters": network.parameters, "conversions": sum(len(row.conversions) for row in costs)},
        coded_layers=len(coded),
        per_tensor_layers=granularities.count("per_tensor"),
        warnings=tuple(network.warnings),
    )
