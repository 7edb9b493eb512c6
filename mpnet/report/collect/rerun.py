# SPDX-License-Identifier: MIT
"""A network run again for a report: predictions of configurations, error and time of every layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Sequence

from mpnet.data.dataset import Dataset
from mpnet.diagnose.analyze import ANALYSIS_IMAGES
from mpnet.diagnose.layer_errors import Analysis, StepAnalysis, analyze
from mpnet.engine.assign import assign_key
from mpnet.engine.cost import LayerCost, layer_costs
from mpnet.engine.lowering import range_owner
from mpnet.engine.plan import Plan
from mpnet.engine.session import Session
from mpnet.errors import ConfigError
from mpnet.kernels.environment import cpu_count
from mpnet.model.network import NETWORK_INPUT
from mpnet.progress import Advance, Progress
from mpnet.report.collect.results import layer_pairs
from mpnet.report.data.report_data import LayerError, LayerPair
from mpnet.resolve.stored import StoredConfiguration
from mpnet.speed.clock import in_turn, together
from mpnet.speed.steps import step_calls, steps_of
from mpnet.trial.inference import run_plans
from mpnet.trial.inputs import spread
from mpnet.trial.kit import Predictions
from mpnet.trial.reopen import open_dataset, reopen
from mpnet.trial.result import Result, run_result_of
from mpnet.trial.task import kit_of
from mpnet.trial.workbench import Workbench

TIME_REPEATS = 10


@dataclass(frozen=True, eq=False)
class ComparedResult:
    """One of the results that are compared. predictions, dataset: of a configuration that ran again, None: on disk."""

    result: Result
    predictions: Predictions | None = None
    dataset: Dataset | None = None


def open_predictions(sides: Sequence[ComparedResult]) -> tuple[Dataset, list[Predictions]]:
    """Read the labelled images behind results on the same data, and what each network says of them.

    Raises: DataError or StoreError, one line, when something is missing or not what was measured.
    """
    baseline = sides[0]
    dataset = open_dataset(baseline.result.run.provenance) if baseline.dataset is None else baseline.dataset
    return dataset, [
        kit_of(side.result.task).read(side.result.predictions_path, dataset) if side.predictions is None else side.predictions
        for side in sides
    ]


@dataclass(frozen=True, eq=False)
class NetworkRunner:
    """A workbench with the precision strings of one sweep or run."""

    bench: Workbench

    def plan(self, key: str) -> Plan:
        """Return the steps for a precision string. Raises: PrecisionError when it is of another network."""
        return self.bench.plan(assign_key(self.bench.network, key))

    def predictions(self, keys: Sequence[str], advance: Advance) -> list[Predictions]:
        """Run configurations and return what each finds; the first is the baseline."""
        return [outcome.predictions for outcome in run_plans(self.bench, [self.plan(key) for key in keys], advance)]

    def rows(self, key: str) -> tuple[LayerCost, ...]:
        """Return the layers, as result.json holds them."""
        return layer_costs(self.plan(key))

    def errors(self, key: str, images: int = ANALYSIS_IMAGES) -> tuple[LayerError, ...]:
        """Measure the error of every lowered layer, in network order, on images spread evenly over the data set.

        Raises: ConfigError when every layer is fp32.
        """
        plan = self.plan(key)
        positions = spread(len(self.bench.inputs), images)
        batches = (batch.x for batch in self.bench.inputs.batches(2, positions))
        return errors_of(analyze(self.bench.prepared, plan, batches, self.bench.threads), plan)

    def costs(self, baseline: str, chosen: str) -> tuple[tuple[LayerPair, ...], str]:
        """Measure time and weight bytes per layer, conversions counted to the layer that they serve.

        The second value says why the times should not be believed, '' where nothing speaks against them.
        """
        times, doubts = zip(*map(self._layer_ms, (baseline, chosen)), strict=True)
        layers = (layer_costs(self.plan(baseline)), layer_costs(self.plan(chosen)))
        return layer_pairs(layers, (times[0], times[1])), next(filter(None, doubts), "")

    def _layer_ms(self, key: str) -> tuple[dict[int, float], str]:
        session = Session(self.bench.prepared, self.plan(key), self.bench.threads)
        session.forward(next(self.bench.inputs.batches(1, [0])).x, copy=False)
        calls = step_calls(session, 1)
        times = in_turn(*(work for _, work in calls), repeats=TIME_REPEATS, warm_up=0)
        doubt = together(times).doubt(self.bench.threads, cpu_count())
        layer_ms: dict[int, float] = {}
        for step in steps_of(session, calls, times):
            layer_ms[step.step.layer] = layer_ms.get(step.step.layer, 0.0) + step.median_ms
        return layer_ms, doubt


def errors_of(analysis: Analysis, plan: Plan) -> tuple[LayerError, ...]:
    """Return an analysis as a report shows it."""
    entering: dict[int, StepAnalysis] = {}
    for step in analysis.steps:
        # The last conversion before the layer's own work is the one whose codes it reads.
        if step.operation in ("Quantize", "Cast"):
            entering[step.layer] = step
    ranges = _ranges(plan)
    errors = []
    for layer in sorted(analysis.layers, key=lambda layer: layer.layer):
        entering_step = entering.get(layer.layer)
        rounding = entering_step.local if entering_step is not None else None
        statistics = entering_step.cumulative if entering_step is not None else layer.cumulative
        errors.append(
            LayerError(
                layer.layer,
                layer.name,
                str(layer.precision),
                layer.cumulative.sqnr_db,
                layer.local.sqnr_db,
                layer.cumulative.cosine,
                _number(rounding.rmse_per_scale if rounding else None),
                _number(rounding.saturated if rounding else None),
                statistics.minimum,
                statistics.maximum,
                entering_step.histogram if entering_step is not None else (),
                (statistics.minimum, statistics.maximum),
                ranges.get(layer.layer),
                layer.noise,
            )
        )
    return tuple(errors)


def _ranges(plan: Plan) -> Mapping[int, tuple[float, float]]:
    """Return the calibrated range of what enters each layer that has one."""
    ranges = {}
    for layer in plan.network.convolutions:
        if plan.options.of(layer.index).calibrated and layer.inputs:
            owner = NETWORK_INPUT if layer.inputs[0] == NETWORK_INPUT else range_owner(plan.network, layer.inputs[0])
            bounds = plan.options.ranges.get(owner)
            if bounds is not None:
                ranges[layer.index] = (float(bounds[0]), float(bounds[1]))
    return ranges


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def run_with_unlabelled(run: StoredConfiguration, unlabelled: Path, progress: Progress) -> ComparedResult:
    """Run a result's network on its own images and unlabelled ones. Raises: ConfigError for one of another engine."""
    assert run.result is not None
    if run.result.run.deployed is not None:
        engine = run.result.run.deployed.engine
        raise ConfigError(f"{run.path}: ran in {engine}; run it anew with `mpnet run --engine {engine} --unlabelled ...`")
    runner = NetworkRunner(reopen(run.provenance, run.output, unlabelled))
    with progress("images", len(runner.bench.inputs)) as advance:
        (outcome,) = run_plans(runner.bench, [runner.plan(run.key)], advance)
    run_result = run_result_of(
        runner.bench, outcome, baseline=None, command=run.result.run.command, latency=run.result.run.latency
    )
    return ComparedResult(Result(run.path, run_result), outcome.predictions, runner.bench.dataset)
