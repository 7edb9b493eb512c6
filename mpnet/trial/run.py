"""Runs plans on a workbench's pictures: forward, decode, suppress. All plans share each decoded picture."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.detection.decode import Candidates, decode_head, join_images
from mpnet.detection.nms import suppress
from mpnet.detection.preprocess import geometry_array
from mpnet.engine.plan import Plan
from mpnet.engine.run import Session
from mpnet.evaluation.signal import squared_sum
from mpnet.progress import Advance, unseen
from mpnet.spec.detections import Detections
from mpnet.trial.inputs import in_order
from mpnet.trial.measure import best_of_each, decibel
from mpnet.trial.workbench import Workbench


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one plan found. head_sqnr_db: per yolo layer, against the first plan of the same pass."""

    plan: Plan
    detections: Detections
    head_sqnr_db: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class _Part:
    """A few pictures' share, per plan and head: candidates, and sums of squares of signal and noise, by picture."""

    images: int
    candidates: list[list[Candidates]]
    signal: list[NDArray[np.float64]]
    noise: list[list[NDArray[np.float64]]]


def run_plans(bench: Workbench, plans: Sequence[Plan], advance: Advance = unseen) -> list[Outcome]:
    """Forward all pictures through every plan; `advance` gets the number of pictures that are done.

    The first plan is the one that the others' heads are compared with. Every thread takes whole batches, from the file
    to the candidates: that keeps all cores busy without one waiting for another within a layer, and changes no bit.
    Raises: DataError for broken pictures, EngineError for values that are not finite, naming the layer.
    """
    size = bench.experiment.runtime.batch
    batches = [range(start, min(start + size, len(bench.inputs))) for start in range(0, len(bench.inputs), size)]
    worker = _Worker(bench, plans)
    parts = []
    for part in in_order(worker, batches, min(bench.threads, len(batches))):
        parts.append(part)
        advance(part.images)
    outcomes = []
    for number, plan in enumerate(plans):
        joined = [join_images([part.candidates[number][head] for part in parts]) for head in range(len(bench.heads))]
        detections = best_of_each(suppress(joined, bench.dataset.sizes, bench.nms), bench.experiment.detection.max_detections)
        ratios = [] if number == 0 else [
            decibel(np.concatenate([part.signal[head] for part in parts]),
                    np.concatenate([part.noise[number - 1][head] for part in parts]))
            for head in range(len(bench.heads))
        ]
        outcomes.append(Outcome(plan, detections, tuple(ratios)))
    return outcomes


class _Worker:
    """Runs a few pictures through all plans; each thread has sessions of its own over shared weights."""

    def __init__(self, bench: Workbench, plans: Sequence[Plan]) -> None:
        self._bench = bench
        self._plans = plans
        self._local = threading.local()
        self._heads = bench.heads
        self._prepared = bench.prepared  # made before threads could make it twice

    def __call__(self, positions: Sequence[int]) -> _Part:
        sessions: list[Session] | None = getattr(self._local, "sessions", None)
        if sessions is None:
            sessions = self._local.sessions = [Session(self._prepared, plan) for plan in self._plans]
        batch = self._bench.inputs.take(positions)
        places = geometry_array(batch.geometry)
        confidence = self._bench.experiment.detection.confidence
        # Each session has memory of its own, so the first one's heads last until its next forward pass.
        tensors = [session.forward(batch.x, copy=False) for session in sessions]
        candidates = [
            [decode_head(tensor, head, places, confidence) for tensor, head in zip(heads, self._heads, strict=True)]
            for heads in tensors
        ]
        others = tensors[1:]
        signal = [squared_sum(reference) for reference in tensors[0]] if others else []
        noise = [[squared_sum(tensor, reference) for tensor, reference in zip(heads, tensors[0], strict=True)]
                 for heads in others]
        return _Part(len(batch.x), candidates, signal, noise)
