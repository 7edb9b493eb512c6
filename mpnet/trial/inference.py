# SPDX-License-Identifier: MIT
"""Inference, which runs plans on a workbench's images: forward, decode, join. All plans share each decoded image."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.detection.preprocess import geometry_array
from mpnet.engine.bind import LayerFailure
from mpnet.engine.plan import Plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import NonFiniteError
from mpnet.evaluation.signal import squared_sum
from mpnet.progress import Advance, unseen
from mpnet.trial.inputs import in_order
from mpnet.trial.kit import Decoded, Predictions
from mpnet.trial.measure import decibel
from mpnet.trial.workbench import Workbench

Forward = Callable[[NDArray[np.float32]], list[NDArray[np.float32]]]
"""A forward pass: (n, height, width, channels) -> the tensors that enter the heads, valid until the next call."""


@dataclass(frozen=True, eq=False)
class Runner:
    """A runner of a plan.

    open: called once per thread. beside: number of the runner, among those of one pass, whose heads this one's relative error
    is measured against; None: nobody's.
    """

    plan: Plan
    open: Callable[[], Forward]
    beside: int | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """The predictions of one plan: Detections or Classifications, by the network's task.

    head_sqnr_db: per output, against the first plan of the same pass.
    head_error:   root of (squared difference / squared values) over all outputs, against the runner beside it.
    """

    plan: Plan
    predictions: Predictions
    head_sqnr_db: tuple[float, ...]
    head_error: float | None = None


@dataclass(frozen=True, eq=False)
class _Share:
    """A few images' share of an outcome: what was decoded per runner and output, and sums of squares by image.

    The sums are of the outputs of a runner and of the differences of a pair of runners.
    """

    images: int
    decoded: list[list[Decoded]]
    signal: dict[int, list[NDArray[np.float64]]]
    noise: dict[tuple[int, int], list[NDArray[np.float64]]]


def run_plans(bench: Workbench, plans: Sequence[Plan], advance: Advance = unseen) -> list[Outcome]:
    """Forward all images through every plan in mpnet's engine, see `run_all`."""
    prepared = bench.prepared  # made before threads could make it twice
    return run_all(bench, [own_runner(prepared, plan) for plan in plans], advance)


def run_each(bench: Workbench, plans: Sequence[Plan], advance: Advance = unseen) -> list[Outcome | str]:
    """Run as `run_plans`; for a plan with values that are not finite say why it has no outcome, with the layer's name."""
    try:
        return list(run_plans(bench, plans, advance))
    except (LayerFailure, NonFiniteError) as error:
        if len(plans) == 1:
            return [error.reason if isinstance(error, LayerFailure) else str(error)]
    return [outcome for plan in plans for outcome in run_each(bench, [plan])]


def own_runner(prepared: Prepared, plan: Plan) -> Runner:
    """Return mpnet's own engine; sessions of several threads share the weights."""

    def open_session() -> Forward:
        # A session has memory of its own, so its heads last until its next forward pass.
        session = Session(prepared, plan)
        return lambda batch: session.forward(batch, copy=False)

    return Runner(plan, open_session)


def run_all(bench: Workbench, runners: Sequence[Runner], advance: Advance = unseen) -> list[Outcome]:
    """Forward all images through every runner; `advance` gets the number of images that are done.

    The first runner is the one that the others' heads are compared with. Every thread takes whole batches, from the file
    to the candidates: that keeps all cores busy without one waiting for another within a layer, and changes no bit.
    Raises: DataError for broken images, EngineError for values that are not finite, naming the layer.
    """
    size = bench.experiment.runtime.batch
    batches = [range(start, min(start + size, len(bench.inputs))) for start in range(0, len(bench.inputs), size)]
    worker = _Worker(bench, runners)
    shares = []
    for share in in_order(worker, batches, min(bench.threads, len(batches))):
        shares.append(share)
        advance(share.images)
    outcomes, decoder = [], bench.decoder
    for number, runner in enumerate(runners):
        predictions = decoder.predictions(
            [decoder.join(pieces) for pieces in zip(*(share.decoded[number] for share in shares), strict=True)]
        )
        ratios = [] if number == 0 else [decibel(*sums) for sums in _sums(shares, number, 0)]
        error = None if runner.beside is None else relative_error(_sums(shares, number, runner.beside))
        outcomes.append(Outcome(runner.plan, predictions, tuple(ratios), error))
    return outcomes


def relative_error(sums: Iterable[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> float:
    """Return the root of all noise over all signal, from the sums of squares of (signal, noise) of each head."""
    signal, noise = (float(sum(map(np.sum, column))) for column in zip(*sums, strict=True))
    return math.sqrt(noise / signal) if signal else math.inf if noise else 0.0


def _sums(shares: Sequence[_Share], number: int, reference: int) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return (signal, noise) of each head, by image."""
    heads = range(len(shares[0].signal[reference])) if shares else range(0)
    return [
        (
            np.concatenate([share.signal[reference][head] for share in shares]),
            np.concatenate([share.noise[number, reference][head] for share in shares]),
        )
        for head in heads
    ]


class _Worker:
    """A thread's work, which runs a few images through all runners; each thread opens its own."""

    def __init__(self, bench: Workbench, runners: Sequence[Runner]) -> None:
        self._bench = bench
        self._runners = runners
        self._pairs = [
            (number, reference)
            for number, runner in enumerate(runners)
            for reference in dict.fromkeys((0, runner.beside))
            if reference is not None and number != reference
        ]
        self._local = threading.local()
        self._decoder = bench.decoder

    def __call__(self, positions: Sequence[int]) -> _Share:
        passes: list[Forward] | None = getattr(self._local, "passes", None)
        if passes is None:
            passes = self._local.passes = [runner.open() for runner in self._runners]
        batch = self._bench.inputs.take(positions)
        geometry = geometry_array(batch.geometry)
        tensors = [forward(batch.x) for forward in passes]
        decoded = [[self._decoder.decode(o, tensor, geometry) for o, tensor in enumerate(outputs)] for outputs in tensors]
        signal = {
            reference: [squared_sum(tensor) for tensor in tensors[reference]]
            for reference in dict.fromkeys(reference for _, reference in self._pairs)
        }
        noise = {
            (number, reference): [
                squared_sum(tensor, reference_tensor)
                for tensor, reference_tensor in zip(tensors[number], tensors[reference], strict=True)
            ]
            for number, reference in self._pairs
        }
        return _Share(len(batch.x), decoded, signal, noise)
