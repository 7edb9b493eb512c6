"""Runs plans on a workbench's pictures: forward, decode, suppress, measure. All plans share each decoded picture."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any, Callable, Sequence

import numpy as np

from mpnet.detection.decode import Candidates, decode_head, join_images
from mpnet.detection.nms import suppress
from mpnet.detection.preprocess import geometry_array
from mpnet.engine.cost import layer_costs, plan_cost
from mpnet.engine.plan import Plan
from mpnet.engine.run import Session
from mpnet.experiments.environment import versions
from mpnet.experiments.measure import SignalToNoise, measure_agreement, measure_detections
from mpnet.experiments.result import FORMAT, VERSION
from mpnet.experiments.workbench import Workbench
from mpnet.spec.detections import Detections

Advance = Callable[[int], None]
LATENCY_RUNS = 20
LATENCY_SECONDS = 2.0


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one plan found. head_sqnr_db: per yolo layer, against the first plan of the same pass."""

    plan: Plan
    detections: Detections
    head_sqnr_db: tuple[float, ...]


def run_plans(bench: Workbench, plans: Sequence[Plan], advance: Advance = lambda count: None) -> list[Outcome]:
    """Forward all pictures through every plan; `advance` gets the number of pictures that are done.

    The first plan is the one that the others' heads are compared with.
    Raises: DataError for broken pictures, EngineError for values that are not finite, naming the layer.
    """
    sessions = [Session(bench.prepared, plan, bench.threads) for plan in plans]
    candidates: list[list[list[Candidates]]] = [[[] for _ in bench.heads] for _ in plans]
    noise = [[SignalToNoise() for _ in bench.heads] for _ in plans]
    confidence = bench.experiment.detection.confidence
    for batch in bench.inputs.batches(bench.experiment.runtime.batch):
        places = geometry_array(batch.geometry)
        reference: list[Any] = []
        for number, session in enumerate(sessions):
            tensors = session.forward(batch.x, copy=False)
            if number == 0 and len(plans) > 1:
                reference = tensors
            for head, tensor in enumerate(tensors):
                candidates[number][head].append(decode_head(tensor, bench.heads[head], places, confidence))
                if number:
                    noise[number][head].add(reference[head], tensor)
        advance(len(batch.x))
    outcomes = []
    for number, plan in enumerate(plans):
        joined = [join_images(parts) for parts in candidates[number]]
        detections = _best(suppress(joined, bench.dataset.sizes, bench.nms), bench.experiment.detection.max_detections)
        outcomes.append(Outcome(plan, detections, tuple(measure.decibel for measure in noise[number])))
    return outcomes


def measure_latency(bench: Workbench, plan: Plan) -> dict[str, Any]:
    """The `latency` of a result: milliseconds for one picture, input ready to heads, over a few runs."""
    session = Session(bench.prepared, plan, bench.threads)
    x = next(bench.inputs.batches(1, [0])).x
    session.forward(x)
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 3 or (len(times) < LATENCY_RUNS and time.perf_counter() - start < LATENCY_SECONDS):
        begin = time.perf_counter()
        session.forward(x)
        times.append(1000 * (time.perf_counter() - begin))
    return {
        "isa": bench.kernels.name,
        "threads": bench.threads,
        "median_ms": statistics.median(times),
        "min_ms": min(times),
        "images": len(times),
        "steps": [],
    }


def build_document(
    bench: Workbench, outcome: Outcome, *, baseline: Outcome | None, command: str, created: str
) -> dict[str, Any]:
    """The result.json of one outcome, as docs/architecture.md describes it."""
    identity = bench.identity(outcome.plan.precision)
    metrics, per_class = measure_detections(outcome.detections, bench.dataset)
    agreement = None
    if baseline is not None and baseline.plan.precision.key != outcome.plan.precision.key:
        agreement = measure_agreement(
            baseline.detections, outcome.detections, bench.dataset, bench.identity(baseline.plan.precision).id,
            list(outcome.head_sqnr_db),
        )
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": bench.experiment.name,
        "id": identity.id,
        "created": created,
        "command": command,
        "digests": identity.digests(),
        "protocol": bench.protocol,
        "precision": {"key": outcome.plan.precision.key, "layers": [row.as_json() for row in layer_costs(outcome.plan)]},
        "metrics": metrics,
        "agreement": agreement,
        "per_class": per_class,
        "cost": plan_cost(outcome.plan).as_json(),
        "latency": measure_latency(bench, outcome.plan),
        "versions": versions(),
        "sources": dict(bench.sources or {}),
        "notes": list(bench.dataset.notes),
    }


def _best(detections: Detections, limit: int | None) -> Detections:
    """The `limit` best of each picture; equal scores in their order."""
    if limit is None or len(detections) == 0:
        return detections
    order = np.lexsort((-detections.score, detections.image_index))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - detections.offsets[detections.image_index[order]]
    return detections.select(rank < limit)
