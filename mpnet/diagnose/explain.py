# SPDX-License-Identifier: MIT
"""The layers of a configuration that lose objects: all objects are compared once, then the worst are taken apart.

Both the configuration and its baseline run on all images. For each object that is taken apart, layers of the configuration are
raised to the baseline's precision, on its image alone: how much of the loss is whose (`estimate_shares`), and what is the least
to raise (`find_cheapest_way`). Objects of one image share what ran.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, Sequence

from mpnet.config.experiment import Experiment
from mpnet.data.detections import Detections
from mpnet.diagnose.explanation_document import ExplanationDocument, LayerLosses, ObjectRow, Remedy, ShareRow
from mpnet.diagnose.objects import (
    DOUBLED,
    KEPT,
    LOST,
    MOVED,
    LostObject,
    collect_reference_objects,
    find,
    find_lost_objects,
    find_named_object,
    select_image,
)
from mpnet.diagnose.runs import ImageRuns, raise_key
from mpnet.diagnose.shares import (
    ExplainedObject,
    Orders,
    Way,
    covers_all_orders,
    draw_orders,
    estimate_shares,
    find_cheapest_way,
    list_sets,
)
from mpnet.engine.assign import PrecisionPlan, assign_key
from mpnet.engine.cost import plan_cost
from mpnet.errors import ConfigError
from mpnet.evaluation.match import Truths
from mpnet.evaluation.metrics import SIZES, size_of
from mpnet.model.plan_words import PlanWords
from mpnet.model.task import DETECTION
from mpnet.progress import Progress, silent
from mpnet.trial.experiment import open_workbench
from mpnet.trial.identity import identity_of
from mpnet.trial.inference import run_plans
from mpnet.trial.inputs import in_order
from mpnet.trial.kit import detections_of
from mpnet.trial.workbench import Workbench

WORST = 20
PAIRS = 8
"""Orders that are drawn for an object, each in both directions."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """plan, baseline: the configuration and what it is compared with. detections: of both, of all images.

    lost: all objects that became worse, explained: those that were taken apart. costs: bit operations that raising each layer
    adds; baseline_bit_operations: those of the baseline.
    """

    bench: Workbench
    plan: PrecisionPlan
    baseline: PrecisionPlan
    detections: tuple[Detections, Detections]
    lost: tuple[LostObject, ...]
    explained: tuple[ExplainedObject, ...]
    costs: dict[int, int]
    baseline_bit_operations: int
    pairs: int

    def document(self) -> ExplanationDocument:
        """Return everything as plain values, the worst object first."""
        counts, words = Counter(lost_object.kind for lost_object in self.lost), PlanWords.of_network(self.bench.network)
        return ExplanationDocument(
            name=self.bench.experiment.name,
            precision_key=self.plan.key,
            baseline_key=self.baseline.key,
            words=words(self.plan.key),
            baseline_words=words(self.baseline.key),
            digests=identity_of(self.bench, self.plan).digests(),
            images=len(self.bench.inputs),
            lost={kind: counts[kind] for kind in (LOST, MOVED, DOUBLED)},
            orders=2 * self.pairs,
            objects=tuple(self._object_row(explained) for explained in self.explained),
            layers=tuple(self._layer_losses(index) for index in self.costs),
        )

    def name(self, lost_object: LostObject) -> str:
        """Return IMAGE:N, as `--object` takes it."""
        return f"{Path(self.bench.dataset.images[lost_object.position].path).name}:{lost_object.number}"

    def _object_row(self, explained: ExplainedObject) -> ObjectRow:
        lost_object = explained.object
        return ObjectRow(
            object=self.name(lost_object),
            image=self.bench.dataset.images[lost_object.position].path,
            kind=lost_object.kind,
            class_name=self.bench.dataset.names[lost_object.category],
            size=size_of(lost_object.area),
            at_edge=lost_object.at_edge,
            box=lost_object.box,
            baseline_score=lost_object.baseline_score,
            score=lost_object.score,
            beside_score=lost_object.near_score,
            loss=explained.loss,
            shares=tuple(
                ShareRow(share.layer, self._name(share.layer), share.percent, share.half_width) for share in explained.shares
            ),
            remedy=None if explained.way is None or lost_object.kind == KEPT else self._remedy(explained.way),
        )

    def _remedy(self, way: Way) -> Remedy:
        return Remedy(
            layers=way.layers,
            names=tuple(self._name(layer) for layer in way.layers),
            precisions=tuple(str(self.baseline[layer]) for layer in way.layers),
            bit_operations_percent=100 * way.bit_operations / max(1, self.baseline_bit_operations),
            score=way.score,
        )

    def _layer_losses(self, index: int) -> LayerLosses:
        explained = [e for e in self.explained if e.shares]
        names = self.bench.dataset.names
        return LayerLosses(
            layer=index,
            name=self._name(index),
            precision=str(self.plan[index]),
            raised=str(self.baseline[index]),
            bit_operations_percent=100 * self.costs[index] / max(1, self.baseline_bit_operations),
            percent=self._share(index, explained),
            brings_back=sum(e.way is not None and index in e.way.layers for e in explained),
            by_size={size: self._share(index, [e for e in explained if size_of(e.object.area) == size]) for size in SIZES},
            by_place={
                place: self._share(index, [e for e in explained if e.object.at_edge == (place == "edge")])
                for place in ("edge", "inside")
            },
            by_class={
                name: self._share(index, [e for e in explained if names[e.object.category] == name])
                for name in dict.fromkeys(names[e.object.category] for e in explained)
            },
        )

    @staticmethod
    def _share(index: int, explained: Sequence[ExplainedObject]) -> float | None:
        """Return a layer's share of what some objects lost together, percent; None for none."""
        losses = [(e.loss, share.percent) for e in explained for share in e.shares if share.layer == index]
        return sum(loss * percent for loss, percent in losses) / sum(loss for loss, _ in losses) if losses else None

    def _name(self, index: int) -> str:
        return self.bench.network.layers[index].name


def explain_experiment(
    experiment: Experiment, *, objects: Sequence[str] = (), worst: int = WORST, pairs: int = PAIRS, progress: Progress = silent
) -> Explanation:
    """Take apart the objects that the experiment's configuration loses.

    objects: IMAGE:N of those that are wanted; none: the `worst`, whose score fell most. pairs: orders to draw.
    Raises: as `open_workbench`; ConfigError for a classifier, an object that is not there, or a configuration that is its
    baseline; EngineError naming the layer.
    """
    bench = open_workbench(experiment)
    if bench.kit.task != DETECTION:
        raise ConfigError(f"{experiment.source}: the network is a classifier; only detectors lose objects")
    configuration, baseline = bench.assign(), bench.uniform(experiment.baseline or "fp32")
    if not _lowered(bench, configuration, baseline):
        raise ConfigError(
            f"{experiment.source}: every layer with weights has the baseline's precision, so nothing can be lost; "
            "choose others, such as --set precision.default=int8"
        )
    with progress("images", len(bench.inputs)) as advance:
        baseline_outcome, outcome = run_plans(bench, [bench.plan(baseline), bench.plan(configuration)], advance)
    detections = detections_of(baseline_outcome.predictions), detections_of(outcome.predictions)
    return explain(bench, configuration, baseline, detections, objects=objects, worst=worst, pairs=pairs, progress=progress)


def explain(
    bench: Workbench,
    configuration: PrecisionPlan,
    baseline: PrecisionPlan,
    detections: tuple[Detections, Detections],
    *,
    objects: Sequence[str] = (),
    worst: int = WORST,
    pairs: int = PAIRS,
    progress: Progress = silent,
) -> Explanation:
    """Explain what is lost where both ran already.

    detections: of baseline and configuration, on all images of the workbench.

    Raises: ConfigError for an object that is not there; EngineError naming the layer.
    """
    truths = collect_reference_objects(bench.dataset, detections[0])
    baseline_finds, finds = find(detections[0], truths), find(detections[1], truths)
    all_lost = find_lost_objects(truths, baseline_finds, finds)
    named = [find_named_object(name, truths, bench.dataset, baseline_finds, finds) for name in dict.fromkeys(objects)]
    selected = named or all_lost[:worst]
    costs, baseline_bit_operations = _costs(bench, configuration, baseline, _lowered(bench, configuration, baseline))
    images = list(dict.fromkeys(lost_object.position for lost_object in selected))
    worker = _Worker(bench, configuration, baseline, truths, selected, costs, pairs)
    explained: dict[int, ExplainedObject] = {}
    with progress("images with lost objects", len(images)) as advance:
        for explained_in_image in in_order(worker, images, min(bench.threads, max(1, len(images)))):
            explained.update({e.object.index: e for e in explained_in_image})
            advance(1)
    return Explanation(
        bench,
        configuration,
        baseline,
        detections,
        tuple(all_lost),
        tuple(explained[lost_object.index] for lost_object in selected),
        costs,
        baseline_bit_operations,
        pairs,
    )


def _lowered(bench: Workbench, configuration: PrecisionPlan, baseline: PrecisionPlan) -> list[int]:
    """Return the layers with weights whose precision is not the baseline's."""
    return [layer.index for layer in bench.network.convolutions if configuration[layer.index] is not baseline[layer.index]]


def _costs(
    bench: Workbench, configuration: PrecisionPlan, baseline: PrecisionPlan, lowered: Iterable[int]
) -> tuple[dict[int, int], int]:
    """Count the bit operations that raising each layer adds, and those of the baseline."""

    def count_bit_operations(precisions: PrecisionPlan) -> int:
        return plan_cost(bench.plan(precisions))["bit_operations"]

    def raised(index: int) -> PrecisionPlan:
        return assign_key(bench.network, raise_key(bench.network, configuration, baseline, frozenset({index})))

    bit_operations = count_bit_operations(configuration)
    return {index: count_bit_operations(raised(index)) - bit_operations for index in lowered}, count_bit_operations(baseline)


@dataclass(frozen=True, eq=False)
class _Worker:
    """The part of an explanation that takes apart the selected objects of one image, in a thread of its own."""

    bench: Workbench
    configuration: PrecisionPlan
    baseline: PrecisionPlan
    truths: Truths
    selected: Sequence[LostObject]
    costs: dict[int, int]
    pairs: int

    def __call__(self, position: int) -> list[ExplainedObject]:
        objects = [lost_object for lost_object in self.selected if lost_object.position == position]
        truths, finds_indices = select_image(self.truths, position, objects)
        runs = ImageRuns(self.bench, self.configuration, self.baseline, position, truths)
        layers = list(self.costs)
        orders = None if covers_all_orders(layers, self.pairs) else draw_orders(layers, self.pairs, (0, position))
        if any(lost_object.kind != KEPT for lost_object in objects):
            runs.run(list_sets(layers, orders))
        indexed = zip(objects, finds_indices, strict=True)
        return [self._explained(runs, lost_object, finds_index, orders) for lost_object, finds_index in indexed]

    def _explained(self, runs: ImageRuns, lost_object: LostObject, finds_index: int, orders: Orders | None) -> ExplainedObject:
        if lost_object.kind == KEPT:
            return ExplainedObject(lost_object, 0.0, (), None)
        loss, of_layers = estimate_shares(runs, lost_object, finds_index, list(self.costs), orders)
        return ExplainedObject(lost_object, loss, of_layers, find_cheapest_way(runs, lost_object, finds_index, self.costs))
