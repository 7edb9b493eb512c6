# SPDX-License-Identifier: MIT
"""Which layers of a configuration lose objects: all objects are compared once, then the worst are taken apart.

Both the configuration and its baseline run on all images. For each object that is taken apart, layers of the configuration are
raised to the baseline's precision, on its image alone: how much of the loss is whose (`shares`), and what is the least to raise
(`cheapest_way`). Objects of one image share what ran.
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
    find,
    lost_objects,
    object_named,
    of_image,
    reference_objects,
)
from mpnet.diagnose.runs import ImageRuns, raised_key
from mpnet.diagnose.shares import Explained, Orders, Way, all_count, cheapest_way, drawn_orders, sets_of, shares
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
from mpnet.trial.workbench import Workbench

WORST = 20
PAIRS = 8
"""Orders that are drawn for an object, each in both directions."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """plan, baseline: the configuration and what it is compared with. detections: of both, of all images.

    lost: all objects that became worse, explained: those that were taken apart. costs: bit operations that raising each layer
    adds; whole: those of the baseline.
    """

    bench: Workbench
    plan: PrecisionPlan
    baseline: PrecisionPlan
    detections: tuple[Detections, Detections]
    lost: tuple[LostObject, ...]
    explained: tuple[Explained, ...]
    costs: dict[int, int]
    whole: int
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

    def _object_row(self, explained: Explained) -> ObjectRow:
        lost_object = explained.object
        return ObjectRow(
            object=self.name(lost_object),
            image=self.bench.dataset.images[lost_object.position].path,
            kind=lost_object.kind,
            class_name=self.bench.dataset.names[lost_object.category],
            size=size_of(lost_object.area),
            at_edge=lost_object.at_edge,
            box=lost_object.box,
            baseline_score=lost_object.before,
            score=lost_object.after,
            beside_score=lost_object.beside,
            loss=explained.loss,
            shares=tuple(
                ShareRow(share.layer, self._name(share.layer), share.percent, share.half) for share in explained.shares
            ),
            remedy=None if explained.way is None or lost_object.kind == KEPT else self._remedy(explained.way),
        )

    def _remedy(self, way: Way) -> Remedy:
        return Remedy(
            layers=way.layers,
            names=tuple(self._name(layer) for layer in way.layers),
            precisions=tuple(str(self.baseline[layer]) for layer in way.layers),
            bit_operations_percent=100 * way.bit_operations / max(1, self.whole),
            score=way.score,
        )

    def _layer_losses(self, index: int) -> LayerLosses:
        explained = [one for one in self.explained if one.shares]
        names = self.bench.dataset.names
        return LayerLosses(
            layer=index,
            name=self._name(index),
            precision=str(self.plan[index]),
            raised=str(self.baseline[index]),
            bit_operations_percent=100 * self.costs[index] / max(1, self.whole),
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
    def _share(index: int, explained: Sequence[Explained]) -> float | None:
        """Return a layer's share of what some objects lost together, percent; None for none."""
        lost = [(one.loss, share.percent) for one in explained for share in one.shares if share.layer == index]
        return sum(loss * percent for loss, percent in lost) / sum(loss for loss, _ in lost) if lost else None

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
    given, baseline = bench.assign(), bench.uniform(experiment.baseline or "fp32")
    if not _lowered(bench, given, baseline):
        raise ConfigError(
            f"{experiment.source}: every layer with weights has the baseline's precision, so nothing can be lost; "
            "choose others, such as --set precision.default=int8"
        )
    with progress("images", len(bench.inputs)) as advance:
        before, after = run_plans(bench, [bench.plan(baseline), bench.plan(given)], advance)
    detections = before.predictions, after.predictions
    return explain(bench, given, baseline, detections, objects=objects, worst=worst, pairs=pairs, progress=progress)


def explain(
    bench: Workbench,
    given: PrecisionPlan,
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
    truths = reference_objects(bench.dataset, detections[0])
    before, after = (find(one, truths) for one in detections)
    lost = lost_objects(truths, before, after)
    wanted = [object_named(name, truths, bench.dataset, before, after) for name in dict.fromkeys(objects)] or lost[:worst]
    costs, whole = _costs(bench, given, baseline, _lowered(bench, given, baseline))
    images = list(dict.fromkeys(one.position for one in wanted))
    worker = _Worker(bench, given, baseline, truths, wanted, costs, pairs)
    explained: dict[int, Explained] = {}
    with progress("images with lost objects", len(images)) as advance:
        for part in in_order(worker, images, min(bench.threads, max(1, len(images)))):
            explained.update({one.object.index: one for one in part})
            advance(1)
    in_turn = tuple(explained[one.index] for one in wanted)
    return Explanation(bench, given, baseline, detections, tuple(lost), in_turn, costs, whole, pairs)


def _lowered(bench: Workbench, given: PrecisionPlan, baseline: PrecisionPlan) -> list[int]:
    """Return the layers with weights whose precision is not the baseline's."""
    return [layer.index for layer in bench.network.convolutions if given[layer.index] is not baseline[layer.index]]


def _costs(
    bench: Workbench, given: PrecisionPlan, baseline: PrecisionPlan, lowered: Iterable[int]
) -> tuple[dict[int, int], int]:
    """Return bit operations that raising each layer adds, and those of the baseline."""

    def counted(precisions: PrecisionPlan) -> int:
        return plan_cost(bench.plan(precisions))["bit_operations"]

    def raised(index: int) -> PrecisionPlan:
        return assign_key(bench.network, raised_key(bench.network, given, baseline, frozenset({index})))

    before = counted(given)
    return {index: counted(raised(index)) - before for index in lowered}, counted(baseline)


@dataclass(frozen=True, eq=False)
class _Worker:
    """Takes apart the wanted objects of one image, in a thread of its own."""

    bench: Workbench
    given: PrecisionPlan
    baseline: PrecisionPlan
    truths: Truths
    wanted: Sequence[LostObject]
    costs: dict[int, int]
    pairs: int

    def __call__(self, position: int) -> list[Explained]:
        objects = [one for one in self.wanted if one.position == position]
        truths, numbers = of_image(self.truths, position, objects)
        runs = ImageRuns(self.bench, self.given, self.baseline, position, truths)
        layers = list(self.costs)
        orders = None if all_count(layers, self.pairs) else drawn_orders(layers, self.pairs, (0, position))
        if any(one.kind != KEPT for one in objects):
            runs.run(sets_of(layers, orders))
        return [self._explained(runs, one, at, orders) for one, at in zip(objects, numbers, strict=True)]

    def _explained(self, runs: ImageRuns, one: LostObject, at: int, orders: Orders | None) -> Explained:
        if one.kind == KEPT:
            return Explained(one, 0.0, (), None)
        loss, of_layers = shares(runs, one, at, list(self.costs), orders)
        return Explained(one, loss, of_layers, cheapest_way(runs, one, at, self.costs))
