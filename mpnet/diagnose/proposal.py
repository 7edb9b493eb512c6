# SPDX-License-Identifier: MIT
"""A proposal of layers worth a higher precision: chosen by noise, decided by measured agreement.

The noise that a layer brings to the heads says where error comes from, not what it does to boxes: a head's error moves
them at once, a trunk's may hardly matter. So sets of layers are run on a few images, and the one that agrees best with
the baseline is proposed. The heads are in all of them where they fit into the share of the MACs: `heads: fp16` is the
rule of thumb that a proposal must not fall behind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Sequence

from mpnet.diagnose.layer_errors import Analysis, LayerAnalysis
from mpnet.engine.cost import LAYER_COSTS, plan_cost
from mpnet.engine.plan import Plan
from mpnet.model.precision import FP16, FP32, INT16, Precision
from mpnet.model.selectors import layer_groups
from mpnet.progress import Progress, silent
from mpnet.trial.inference import run_plans
from mpnet.trial.inputs import spread
from mpnet.trial.workbench import Workbench

IMAGES = 32
CANDIDATES = 8
"""Layers that are tried one by one, those with most noise per MAC; each costs three passes per image at most."""
AT_ONCE = 12
"""Configurations that run in one walk through the images: each needs memory for its activations."""

MUCH_LESS = 0.8
"""Of the noise, about 1 dB: what is told from the luck of a few images where agreement says nothing."""

_Layers = frozenset[int]


@dataclass(frozen=True)
class MeasuredLayers:
    """A configuration with some layers raised, run on a few images.

    layers:    those that are raised.
    agreement: with the baseline, percent, -1 where it finds nothing. noise: over signal, mean of the heads.
    macs:      of the raised layers, for one image. bit_operations: of the whole configuration.
    """

    layers: _Layers
    agreement: float
    noise: float
    macs: int
    bit_operations: int

    def is_better_than(self, other: MeasuredLayers) -> bool:
        """Return whether a few images show it: more agreement and no more noise, or as much agreement and much less noise."""
        if self.agreement > other.agreement:
            return self.noise <= other.noise
        return self.agreement == other.agreement and self.noise <= MUCH_LESS * other.noise


@dataclass(frozen=True)
class Proposal:
    """Layers to raise, in network order, and what that brings.

    images:        how many images each configuration ran on, the same ones. measure: which agreement.
    configuration: as it is. raised: with the layers raised. heads: with the heads alone raised, None where that is too much.
    integer_only:  whether the network runs in integers alone.
    """

    layers: tuple[LayerAnalysis, ...]
    images: int
    measure: str
    configuration: MeasuredLayers
    raised: MeasuredLayers
    heads: MeasuredLayers | None
    integer_only: bool = False

    @property
    def precisions(self) -> dict[int, Precision]:
        """Return the precision to which each layer is raised."""
        return {layer.layer: raise_precision(layer.precision, self.integer_only) for layer in self.layers}


def raise_precision(precision: Precision, integer_only: bool) -> Precision:
    """Return the next higher precision: of codes fp16, else fp32; int16 where a network runs in integers alone."""
    if integer_only and precision.carries_scale:
        return INT16
    return FP16 if precision.carries_scale else FP32


def count_raising_cost(plan: Plan, layer: int) -> int:
    """Count the bit operations that are added when a layer is raised."""
    lowering = plan.lowerings[layer]
    raised_lowering = replace(lowering, precision=raise_precision(lowering.precision, plan.options.integer_only))
    return LAYER_COSTS["bit_operations"](raised_lowering) - LAYER_COSTS["bit_operations"](lowering)


def propose(bench: Workbench, plan: Plan, analysis: Analysis, macs_percent: float, progress: Progress = silent) -> Proposal:
    """Propose the layers of `plan` to raise within `macs_percent` of the network's MACs.

    Raises: as `run_plans`.
    """
    trials = _Trials(bench, plan)
    budget = plan.network.macs * macs_percent / 100
    lowered = {layer.layer: layer for layer in analysis.layers}
    layers = {
        i: layer
        for i, layer in lowered.items()
        if layer.macs <= budget and raise_precision(layer.precision, plan.options.integer_only) is not layer.precision
    }
    by_noise = sorted(
        (i for i, layer in layers.items() if layer.noise > 0), key=lambda i: (-layers[i].noise / max(layers[i].macs, 1), i)
    )
    heads: _Layers = frozenset(lowered).intersection(layer_groups(plan.network).get("heads", ()))
    heads_fit = heads <= layers.keys() and trials.macs(heads) <= budget
    start = heads if heads_fit else frozenset()
    candidates = [i for i in by_noise if i not in start and trials.macs(start | {i}) <= budget][:CANDIDATES]
    trials.run([frozenset(), start, *(start | {i} for i in candidates)], progress)
    by_gain = sorted(candidates, key=lambda i: (-trials.gain(start, i), candidates.index(i)))
    others_by_noise = [i for i in by_noise if i not in start]
    chains = [_sets_within(trials, start, order, budget) for order in (others_by_noise, by_gain)]
    trials.run([layer_set for chain in chains for layer_set in chain], progress)
    start_result = trials[start]
    acceptable = [
        start_result,
        *(candidate for candidate in trials.results() if start <= candidate.layers and candidate.is_better_than(start_result)),
    ]
    best = max(acceptable, key=lambda candidate: (candidate.agreement, -candidate.noise, -candidate.macs))
    proposed_layers = tuple(sorted((layers[i] for i in best.layers), key=lambda layer: layer.layer))
    by_thumb = trials[heads] if heads_fit and heads else None
    integer_only = plan.options.integer_only
    return Proposal(proposed_layers, trials.images, trials.measure, trials[frozenset()], best, by_thumb, integer_only)


def _sets_within(trials: _Trials, start: _Layers, order: Sequence[int], budget: float) -> list[_Layers]:
    """Return the sets that come of adding layers in an order while they fit, at most CANDIDATES of them and the fullest one."""
    sets, layer_set = [], start
    for index in order:
        if trials.macs(layer_set | {index}) <= budget:
            layer_set = layer_set | {index}
            sets.append(layer_set)
    return sets if len(sets) <= CANDIDATES else [*sets[: CANDIDATES - 1], sets[-1]]


class _Trials:
    """Sets of raised layers, each run once on a few of the workbench's images, evenly spread."""

    def __init__(self, bench: Workbench, plan: Plan) -> None:
        positions = spread(len(bench.inputs), IMAGES)
        self.images = len(positions)
        self._bench = bench.of_images(positions)
        self._plan = plan
        self._task = bench.kit.task
        self._baseline = self._bench.plan(bench.uniform(bench.experiment.baseline or str(FP32)))
        self._results: dict[_Layers, MeasuredLayers] = {}

    @property
    def measure(self) -> str:
        """Return the name of the measure of agreement."""
        return self._task.agreement

    def __getitem__(self, layers: _Layers) -> MeasuredLayers:
        return self._results[layers]

    def results(self) -> list[MeasuredLayers]:
        """Return what all sets that ran brought."""
        return list(self._results.values())

    def macs(self, layers: _Layers) -> int:
        """Count the multiply-accumulates of some layers for one image."""
        return sum(self._plan.network.layers[i].macs for i in layers)

    def gain(self, start: _Layers, index: int) -> float:
        """Return the agreement that a layer brings, per MAC; a tie brings none."""
        return (self[start | {index}].agreement - self[start].agreement) / max(self.macs(frozenset({index})), 1)

    def run(self, sets: Sequence[_Layers], progress: Progress) -> None:
        """Measure the sets that did not run yet."""
        remaining = [layer_set for layer_set in dict.fromkeys(sets) if layer_set not in self._results]
        groups = [remaining[start : start + AT_ONCE] for start in range(0, len(remaining), AT_ONCE)]
        with progress("configurations", len(groups) * self.images) as advance:
            for group in groups:
                plans = [self._raised(layer_set) for layer_set in group]
                baseline, *outcomes = run_plans(self._bench, [self._baseline, *plans], advance)
                meter = self._bench.kit.meter(self._bench.dataset, baseline.predictions)
                for layer_set, plan, outcome in zip(group, plans, outcomes, strict=True):
                    agreement = meter.values(outcome.predictions, (self.measure,)).get(self.measure, -1.0)
                    ratios = [10 ** (-db / 10) for db in outcome.head_sqnr_db]
                    self._results[layer_set] = MeasuredLayers(
                        layer_set,
                        agreement,
                        sum(ratios) / max(1, len(ratios)),
                        self.macs(layer_set),
                        plan_cost(plan)["bit_operations"],
                    )

    def _raised(self, layers: _Layers) -> Plan:
        integer_only = self._plan.options.integer_only
        return self._bench.plan(self._bench.assign({i: raise_precision(self._plan.precision[i], integer_only) for i in layers}))
