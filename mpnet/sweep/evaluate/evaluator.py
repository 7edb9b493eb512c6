# SPDX-License-Identifier: MIT
"""The evaluation of chunks: all figures of their configurations, or those of the survivors of a race."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from functools import cached_property
from typing import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import trial_costs
from mpnet.engine.assign import assign_key
from mpnet.engine.cost import CostModel
from mpnet.engine.plan import build_plan
from mpnet.speed.latency_table import predicted_ms
from mpnet.sweep.evaluate.context import Baseline, SweepContext
from mpnet.sweep.evaluate.incremental_runs import IncrementalRuns
from mpnet.sweep.evaluate.race import Race
from mpnet.sweep.evaluate.scoring import Noise, Scorer, heads_sqnr_db
from mpnet.sweep.evaluate.shared_passes import SharedPasses
from mpnet.sweep.evaluate.stem_cache import StemCache
from mpnet.sweep.evaluate.work_chunks import ChunkResult, WorkChunk
from mpnet.sweep.store import FailedTrial, Trial
from mpnet.trial.kit import Predictions
from mpnet.trial.task import kit_of, task_of

FEW_SURVIVORS = 1 / 64
"""Share of a chunk that survives its race up to which running the survivors once more costs less than likely heads save."""


class Evaluator:
    """An evaluator of chunks in one process. Packed weights, and the stem's tensors, are kept for the next chunk."""

    def __init__(self, context: SweepContext) -> None:
        self.context = context
        self.passes = SharedPasses(context)
        self._costs: dict[int, CostModel] = {}
        self._cost_names = trial_costs()
        self._stem_cache = StemCache(self.passes.image_count)
        # Whether few survived the last chunk's race: then the next one computes likely heads alone, and survivors run again.
        self._few_survived = True

    @cached_property
    def scorer(self) -> Scorer:
        """Return the scorer of predictions; it is made when first asked for."""
        context = self.context
        return Scorer(
            context.dataset,
            kit_of(task_of(context.network)),
            baseline=context.baseline.predictions if context.baseline else None,
            select=context.select,
            report=context.report,
            requested_measures=context.requested_measures,
        )

    @cached_property
    def _race(self) -> Race:
        context = self.context
        return Race(
            context.dataset,
            kit_of(task_of(context.network)),
            context.baseline.predictions if context.baseline else None,
            context.select,
            context.order,
        )

    def evaluate(self, chunk: WorkChunk) -> ChunkResult:
        """Return all figures of a chunk's configurations, but for those that rivals beat or whose values are not finite."""
        start_time = time.monotonic()
        if chunk.is_screening:
            return self._screen(chunk, start_time)
        runs, macs, cached_macs = IncrementalRuns(self.passes, chunk.options, stem_cache=self._stem_cache), 0, 0
        image_counts: Counter[int] = Counter()
        failures: dict[str, FailedTrial] = {}

        def measure(keys: Sequence[str]) -> list[Trial]:
            return [Trial(key, {**values, **self.costs(chunk.options, key)}) for key, values in runs.measure(keys, self.scorer)]

        if chunk.rivals is not None:
            names = chunk.rivals.names
            racing = IncrementalRuns(self.passes, chunk.options, likely=self._few_survived, stem_cache=self._stem_cache)
            survivors, image_counts = self._race.survivors(
                chunk.keys, chunk.rivals, racing, lambda key: self.costs(chunk.options, key, names)
            )
            failures.update(racing.failures)
            if self._few_survived:
                macs, cached_macs = racing.macs, racing.cached_macs
            else:
                runs = racing
            trials = sorted(survivors.measure_non_dominated(measure), key=lambda trial: trial.key)
            if dominated_count := len({*survivors.keys} - {trial.key for trial in trials} - runs.failures.keys()):
                image_counts[survivors.images] += dominated_count
            self._few_survived = len(trials) <= FEW_SURVIVORS * len(chunk.keys)
        else:
            trials = measure(chunk.keys)
        failures.update(runs.failures)
        ruled_out = tuple(sorted({*chunk.keys} - {trial.key for trial in trials} - failures.keys()))
        failed_trials = tuple(failures[key] for key in sorted(failures))
        seconds = time.monotonic() - start_time
        return ChunkResult(
            chunk,
            tuple(trials),
            macs + runs.macs,
            ruled_out,
            tuple(sorted(image_counts.items())),
            seconds,
            failed_trials,
            cached_macs + runs.cached_macs,
        )

    def _screen(self, chunk: WorkChunk, start_time: float) -> ChunkResult:
        """Return the noise at the heads on the context's few images, and the costs."""
        # Decoding an imported network's head takes a third of the time of its passes, and noise needs no boxes.
        runs, positions = IncrementalRuns(self.passes, chunk.options, is_decoded=False), self.context.screening
        runs.run(chunk.keys, positions)
        signal, everything = [head[positions] for head in self.passes.signal], np.arange(len(positions))
        trials = [
            Trial(
                key,
                {
                    "head_sqnr_db": heads_sqnr_db(list(map(Noise, signal, runs.noise(key))), everything),
                    **self.costs(chunk.options, key),
                },
            )
            for key in chunk.keys
            if key not in runs.failures
        ]
        failed_trials = tuple(runs.failures[key] for key in sorted(runs.failures))
        return ChunkResult(
            chunk,
            tuple(trials),
            runs.macs,
            seconds=time.monotonic() - start_time,
            failed_trials=failed_trials,
            cached_macs=runs.cached_macs,
        )

    def known_pass(self) -> str:
        """Return the SHA-256 (hex) of all outputs of the context's known configurations for the first image.

        If one of them fails, it is of the reason.

        """
        digest = hashlib.sha256()
        for options, key in enumerate(self.context.known_keys):
            outputs = [np.zeros((1, *shape), np.float32) for shape in self.context.network.output_shapes]
            runs = IncrementalRuns(self.passes, options)
            runs.run((key,), np.arange(1), keep=outputs)
            for failure in runs.failures.values():
                digest.update(failure.reason.encode())
            for output in outputs:
                digest.update(output.data)
        return digest.hexdigest()

    def images_by_loss(self, names: tuple[str, ...], keys: Sequence[str]) -> tuple[NDArray[np.intp], int]:
        """Return the order of the images that select (`SweepContext.order`) for a sample of keys, and MACs executed for it.

        names: of the objectives.
        """
        runs = IncrementalRuns(self.passes, 0, likely=True)
        runs.run(keys, self.context.select)
        sample = [key for key in keys if key not in runs.failures]
        if not sample:
            return np.arange(len(self.context.select)), runs.macs
        return self._race.images_by_loss(names, runs.predictions(sample, 0)), runs.macs

    def predictions(self, options: int, key: str) -> Predictions:
        """Return what one configuration finds: the bits that its trial was measured on. Raises: as `baseline`."""
        runs = IncrementalRuns(self.passes, options)
        runs.run_all(key)
        return runs.predictions((key,), 0)

    def baseline(self, key: str) -> Baseline:
        """Run a configuration as the one that others are compared with.

        Raises: EngineError that names the layer, for values that are not finite.
        """
        count = self.passes.image_count
        tensors: list[NDArray[np.float32]] = [
            np.empty((count, *shape), np.float32) for shape in self.context.network.output_shapes
        ]
        runs = IncrementalRuns(self.passes, 0)
        runs.run_all(key, keep=tensors)
        return Baseline(key, runs.predictions((key,), 0), tuple(tensors), runs.decoded_bytes)

    def baseline_trial(self) -> Trial | None:
        """Return the figures of the context's baseline, whose pass was run for the context; None where there is none."""
        baseline = self.context.baseline
        if baseline is None:
            return None
        noise = [Noise(signal, np.zeros_like(signal)) for signal in self.passes.signal]
        return Trial(baseline.key, {**self.scorer.measure(baseline.predictions, noise), **self.costs(0, baseline.key)})

    def costs(self, options: int, key: str, names: Collection[str] | None = None) -> dict[str, float]:
        """Return the costs of a configuration, as `mpnet run` counts them; with a latency table the predicted time.

        names: of the measures that are needed, None: all.
        """
        context, engine = self.context, self.context.options[options].engine
        if options not in self._costs:
            self._costs[options] = CostModel(context.network, engine, context.unweighted)
        costs = self._costs[options].costs(key, names)
        values = {name: float(costs[name]) for name in self._cost_names if name in costs}
        if context.step_ms and (names is None or "latency_ms" in names):
            plan = build_plan(context.network, assign_key(context.network, key), engine)
            values["latency_ms"] = predicted_ms(plan, context.step_ms)
        return values
