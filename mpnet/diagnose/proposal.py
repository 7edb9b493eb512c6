# SPDX-License-Identifier: MIT
"""A proposal of layers worth a higher precision: looked for by noise as deep sweeps do, decided by measured agreement.

The noise that a layer brings to the heads says where error comes from, not what it does to boxes: a head's error moves
them at once, a trunk's may hardly matter. So sets of layers are run on a few images, and the one that agrees best with
the baseline is proposed. The heads are in all of them where they fit into the share of the MACs: `heads: fp16` is the
rule of thumb that a proposal must not fall behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Sequence

from mpnet.diagnose.layer_errors import Analysis, LayerAnalysis
from mpnet.diagnose.raising import Raising
from mpnet.engine.bind import LayerFailure
from mpnet.engine.cost import plan_cost
from mpnet.engine.plan import Plan
from mpnet.errors import NonFiniteError
from mpnet.model.precision import FP32, Precision
from mpnet.model.selectors import layer_groups
from mpnet.progress import Advance, Progress, silent, unseen
from mpnet.sweep.problem.front import evenly
from mpnet.trial.inference import run_plans
from mpnet.trial.inputs import spread
from mpnet.trial.lowering_order import Depths, LoweringSearch, MeasuredLowering, follow
from mpnet.trial.workbench import Workbench

IMAGES = 32
VARIABLES = 48
"""Layers of which the chain is made, those with most noise per MAC: each is measured two or three times."""
CANDIDATES, EXCHANGED = 8, 4
"""Sets that may be proposed: of the chain, and of exchanges around the fullest that fits. More would be picked by luck."""
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
    precisions:    that these layers are raised to, by index.
    configuration: as it is. raised: with the layers raised. heads: with the heads alone raised, None where that is too much.
    """

    layers: tuple[LayerAnalysis, ...]
    precisions: Mapping[int, Precision]
    images: int
    measure: str
    configuration: MeasuredLayers
    raised: MeasuredLayers
    heads: MeasuredLayers | None


def propose(
    bench: Workbench, plan: Plan, analysis: Analysis, macs_percent: float, raising: Raising, progress: Progress = silent
) -> Proposal:
    """Propose the layers of `plan` to raise within `macs_percent` of the network's MACs.

    The order is that of deep sweeps (`trial.lowering_order`): from all layers raised down to none, those first lowered that
    bring least noise for what they cost, measured anew as more of them are low. Raises: as `run_plans`.
    """
    trials = _RaisedTrials(bench, plan, raising)
    budget = plan.network.macs * macs_percent / 100
    lowered = {layer.layer: layer for layer in analysis.layers}
    layers = {
        i: layer
        for i, layer in lowered.items()
        if layer.macs <= budget and raising.raise_precision(i, layer.precision) is not layer.precision
    }
    heads: _Layers = frozenset(lowered).intersection(layer_groups(plan.network).get("heads", ()))
    heads_fit = heads <= layers.keys() and trials.macs(heads) <= budget
    start = heads if heads_fit else frozenset()
    by_noise = sorted(layers.keys() - start, key=lambda i: (-layers[i].noise / max(layers[i].macs, 1), i))
    variables = [i for i in by_noise if layers[i].noise > 0 and trials.macs(start | {i}) <= budget][:VARIABLES]
    trials.run([frozenset(), start], progress)
    candidates = _search_chain(trials, start, variables, budget, progress)
    start_result = trials[start]
    acceptable = [start_result, *(candidate for candidate in candidates if candidate.is_better_than(start_result))]
    best = max(acceptable, key=lambda candidate: (candidate.agreement, -candidate.noise, -candidate.macs))
    proposed_layers = tuple(sorted((layers[i] for i in best.layers), key=lambda layer: layer.layer))
    by_thumb = trials[heads] if heads_fit and heads else None
    precisions = {layer.layer: raising.raise_precision(layer.layer, layer.precision) for layer in proposed_layers}
    return Proposal(proposed_layers, precisions, trials.images, trials.measure, trials[frozenset()], best, by_thumb)


def _search_chain(
    trials: _RaisedTrials, start: _Layers, variables: Sequence[int], budget: float, progress: Progress
) -> list[MeasuredLayers]:
    """Return the sets of the chain that fit, evenly thinned, and those of less noise that exchanges around the fullest find."""
    search = LoweringSearch((1,) * len(variables))

    def raised(depths: Depths) -> _Layers:
        return start.union(layer for layer, depth in zip(variables, depths, strict=True) if depth == 0)

    def measure(requested: Sequence[Depths]) -> dict[Depths, MeasuredLowering]:
        trials.run([raised(depths) for depths in requested], progress)
        results = {depths: trials.find(raised(depths)) for depths in requested}
        return {depths: MeasuredLowering(result.noise, result.macs) for depths, result in results.items() if result is not None}

    chain = follow(search.search_chain(), measure)
    fitting = [depths for depths in dict.fromkeys(chain) if trials.macs(raised(depths)) <= budget]
    exchanged = follow(search.exchange(fitting[0]), measure)[:EXCHANGED] if len(fitting) > 1 else []
    results = [trials.find(raised(depths)) for depths in [*evenly(fitting, CANDIDATES), *exchanged]]
    return [result for result in results if result is not None]


class _RaisedTrials:
    """Sets of raised layers, each run once on a few of the workbench's images, evenly spread."""

    def __init__(self, bench: Workbench, plan: Plan, raising: Raising) -> None:
        self.positions = spread(len(bench.inputs), IMAGES)
        self.images = len(self.positions)
        self._bench = bench.of_images(self.positions)
        self._plan, self._raising = plan, raising
        self._task = bench.kit.task
        self._results: dict[_Layers, MeasuredLayers] = {}
        self._failures: set[_Layers] = set()

    @property
    def measure(self) -> str:
        """Return the name of the measure of agreement."""
        return self._task.agreement

    def __getitem__(self, layers: _Layers) -> MeasuredLayers:
        return self._results[layers]

    def find(self, layers: _Layers) -> MeasuredLayers | None:
        """Return what a set brought; None where values of it are not finite."""
        return self._results.get(layers)

    def macs(self, layers: _Layers) -> int:
        """Count the multiply-accumulates of some layers for one image."""
        return sum(self._plan.network.layers[i].macs for i in layers)

    def run(self, sets: Sequence[_Layers], progress: Progress) -> None:
        """Measure the sets that did not run yet. Raises: as `run_plans`, where nothing is raised."""
        unmeasured = [layers for layers in dict.fromkeys(sets) if layers not in self._results and layers not in self._failures]
        groups = [unmeasured[start : start + AT_ONCE] for start in range(0, len(unmeasured), AT_ONCE)]
        with progress("configurations", len(groups) * self.images) as advance:
            for group in groups:
                try:
                    self._measure(group, advance)
                except (LayerFailure, NonFiniteError):
                    for layers in group:
                        self._measure_alone(layers)

    def _measure_alone(self, layers: _Layers) -> None:
        try:
            self._measure([layers], unseen)
        except (LayerFailure, NonFiniteError):
            if not layers:
                raise
            self._failures.add(layers)

    def _measure(self, sets: Sequence[_Layers], advance: Advance) -> None:
        plans = [self._raised_plan(layers) for layers in sets]
        for layers, plan, outcome in zip(sets, plans, measure_plans(self._bench, plans, advance), strict=True):
            bit_operations = plan_cost(plan)["bit_operations"]
            self._results[layers] = MeasuredLayers(layers, *outcome, self.macs(layers), bit_operations)

    def _raised_plan(self, layers: _Layers) -> Plan:
        precision = self._plan.precision
        return self._bench.plan(self._bench.assign({i: self._raising.raise_precision(i, precision[i]) for i in layers}))


def measure_plans(bench: Workbench, plans: Sequence[Plan], advance: Advance = unseen) -> list[tuple[float, float]]:
    """Run plans beside the baseline; return of each its agreement with it, -1 where it finds nothing, and its noise.

    Noise is over signal, the mean of the heads. Raises: as `run_plans`.
    """
    baseline_plan = bench.plan(bench.uniform(bench.experiment.baseline or str(FP32)))
    measure_name = bench.kit.task.agreement
    baseline, *outcomes = run_plans(bench, [baseline_plan, *plans], advance)
    meter = bench.kit.meter(bench.dataset, baseline.predictions)
    measured = []
    for outcome in outcomes:
        agreement = meter.values(outcome.predictions, (measure_name,)).get(measure_name, -1.0)
        ratios = [10 ** (-db / 10) for db in outcome.head_sqnr_db]
        measured.append((agreement, sum(ratios) / max(1, len(ratios))))
    return measured
