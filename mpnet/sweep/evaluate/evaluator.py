# SPDX-License-Identifier: MIT
"""Figures of many configurations: shared prefixes forward, each output decoded once, then joined and measured."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections import Counter
from functools import cached_property
from typing import Any, Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import trial_costs
from mpnet.engine.assign import assign_key
from mpnet.engine.bind import LayerFailure
from mpnet.engine.cost import CostModel
from mpnet.engine.execute import run_lowering
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.tensor import Tensor, host_tensor
from mpnet.errors import EngineError
from mpnet.evaluation.signal import squared_sum
from mpnet.kernels.isa import kernels
from mpnet.speed.latency_table import predicted_ms
from mpnet.sweep.evaluate.context import Baseline, SweepContext, values_of
from mpnet.sweep.evaluate.graph import SharedGraph
from mpnet.sweep.evaluate.head_results import HeadResults, Outputs
from mpnet.sweep.evaluate.likely_heads import LikelyHeads
from mpnet.sweep.evaluate.race import Race
from mpnet.sweep.evaluate.scoring import Noise, Scorer, heads_sqnr_db
from mpnet.sweep.evaluate.stem_cache import StemCache
from mpnet.sweep.evaluate.trie import build_graph, join_tensors, run_graph, run_stem, slice_images
from mpnet.sweep.evaluate.work_chunks import ChunkResult, WorkChunk
from mpnet.sweep.store import FailedTrial, Trial
from mpnet.trial.task import kit_of, task_of

LIVE_BYTES = 192 << 20
"""Memory that the tensors of one group of images may take in one worker."""
MAX_GROUP = 64
"""Images in one call after the stem: enough to make calls cheap, few enough that tensors stay in the cache."""
FEW_SURVIVORS = 1 / 64
"""Share of a chunk that survives its race up to which running the survivors once more costs less than likely heads save."""


class Evaluator:
    """An evaluator of chunks in one process. Packed weights are kept for the next chunk."""

    def __init__(self, context: SweepContext) -> None:
        self.context = context
        self._images = values_of(context.images)
        self._prepared: dict[int, Prepared] = {}
        self._costs: dict[int, CostModel] = {}
        self._cost_names = trial_costs()
        self._kernels = kernels(None if context.isa == "auto" else context.isa)
        self._stem_cache = StemCache(len(self._images))
        # Whether few survived the last chunk's race: then the next one computes likely heads alone, and survivors run again.
        self._few_survived = True

    def prepared(self, options: int) -> Prepared:
        """Return the packed weights of an option set; no two sets share any."""
        if options not in self._prepared:
            self._prepared[options] = self.context.options[options].prepare(self.context.network, self._kernels)
        return self._prepared[options]

    @cached_property
    def _baseline_heads(self) -> list[NDArray[np.float32]]:
        return [] if self.context.baseline is None else [values_of(a) for a in self.context.baseline.outputs]

    @cached_property
    def signal(self) -> list[NDArray[np.float64]]:
        """Return the sum of squares of each of the baseline's outputs, float64 (images,) each."""
        return [
            np.concatenate([squared_sum(np.ascontiguousarray(head[i : i + 1])) for i in range(len(head))])
            for head in self._baseline_heads
        ]

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

    @cached_property
    def _likely(self) -> LikelyHeads:
        return LikelyHeads(self.context.network, self.context.decoder)

    def graph(self, options: int, keys: Sequence[str]) -> SharedGraph:
        """Return the shared computation of configurations."""
        return build_graph(self.context.network, keys, self.context.options[options].engine, self.context.unweighted)

    def evaluate(self, chunk: WorkChunk) -> ChunkResult:
        """Return all figures of a chunk's configurations, but for those that rivals beat or whose values are not finite."""
        start_time = time.monotonic()
        if chunk.is_screening:
            return self._screen(chunk, start_time)
        runs, macs, cached_macs = _PartialRuns(self, chunk.options, stem_cache=self._stem_cache), 0, 0
        image_counts: Counter[int] = Counter()
        failures: dict[str, FailedTrial] = {}

        def measure(keys: Sequence[str]) -> list[Trial]:
            return [Trial(key, {**values, **self.costs(chunk.options, key)}) for key, values in runs.measure(keys)]

        if chunk.rivals is not None:
            names = chunk.rivals.names
            racing = _PartialRuns(self, chunk.options, likely=self._few_survived, stem_cache=self._stem_cache)
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
        runs, positions = _PartialRuns(self, chunk.options), self.context.screening
        runs.run(chunk.keys, positions)
        signal, everything = [head[positions] for head in self.signal], np.arange(len(positions))
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
            runs = _PartialRuns(self, options)
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
        runs = _PartialRuns(self, 0, likely=True)
        runs.run(keys, self.context.select)
        sample = [key for key in keys if key not in runs.failures]
        if not sample:
            return np.arange(len(self.context.select)), runs.macs
        return self._race.images_by_loss(names, runs.predictions(sample, 0)), runs.macs

    def predictions(self, options: int, key: str) -> Any:
        """Return what one configuration finds: the bits that its trial was measured on. Raises: as `baseline`."""
        runs = _PartialRuns(self, options)
        runs.run_all(key)
        return runs.predictions((key,), 0)

    def baseline(self, key: str) -> Baseline:
        """Run a configuration as the one that others are compared with.

        Raises: EngineError that names the layer, for values that are not finite.
        """
        count = len(self._images)
        tensors: list[NDArray[np.float32]] = [
            np.empty((count, *shape), np.float32) for shape in self.context.network.output_shapes
        ]
        runs = _PartialRuns(self, 0)
        runs.run_all(key, keep=tensors)
        return Baseline(key, runs.predictions((key,), 0), tuple(tensors), runs.decoded_bytes)

    def baseline_trial(self) -> Trial | None:
        """Return the figures of the context's baseline, whose pass was run for the context; None where there is none."""
        baseline = self.context.baseline
        if baseline is None:
            return None
        noise = [Noise(signal, np.zeros_like(signal)) for signal in self.signal]
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

    def forward(
        self,
        graph: SharedGraph,
        options: int,
        images: NDArray[np.intp],
        keep: Sequence[NDArray[np.float32]] = (),
        likely: bool = False,
        stem_cache: StemCache | None = None,
    ) -> Outputs:
        """Return the outputs of all configurations of the graph on the images at these positions.

        Outputs with values that are not finite are left out; once all configurations have failed, the other images as well.
        keep:       gets the tensors themselves.
        likely:     compute those cells of a head alone that can have boxes, and no differences to the baseline.
        stem_cache: has what the last call left for this one; without it nothing is cached.

        The stem, whose tensors are large, goes through in small groups of images; what comes after it in larger ones,
        since it is done for every configuration and each step costs a call.
        """
        stem_group_size = max(1, min(self.context.group, LIVE_BYTES // max(1, graph.peak_bytes(stem=True))))
        group_size = max(stem_group_size, min(MAX_GROUP, LIVE_BYTES // max(1, graph.peak_bytes(stem=False))))
        results = HeadResults(self.context, graph, self._likely, keep, [] if likely else self._baseline_heads)
        failures: dict[int, LayerFailure] = {}
        cached_macs = 0
        for start in range(0, len(images), group_size):
            positions = images[start : start + group_size]
            try:
                boundary, executed = self._run_stem(graph, options, positions, stem_group_size, stem_cache)
            except LayerFailure as failure:
                failures = dict.fromkeys(itertools.chain(*graph.heads), failure)
                break
            cached = graph.stem - executed
            cached_macs += len(positions) * sum(
                self.context.network.layers[graph.nodes[number].layer].macs for number in cached
            )
            image = self._values(positions) if graph.reads_image else None
            run_graph(
                graph,
                boundary,
                self.prepared(options),
                results.receiver(start, positions),
                self.context.threads,
                image,
                self._likely.run if likely else run_lowering,
                failures,
            )
            if failures and any(names.keys() <= failures.keys() for names in graph.heads):
                break
        return results.outputs(failures, cached_macs)

    def _run_stem(
        self, graph: SharedGraph, options: int, positions: NDArray[np.intp], group: int, cache: StemCache | None
    ) -> tuple[list[Tensor], set[int]]:
        """Run the layers that all configurations share, for a few images at a time, as far as their tensors are not cached.

        group:  images at a time.
        Result: the tensors that later layers read, and numbers of the nodes that were executed. Raises: LayerFailure.
        """
        cached = {} if cache is None else cache.find(graph, options, positions)
        steps = graph.stem_steps(cached)
        to_cache = [] if cache is None else cache.select(graph, {*steps, *cached})
        additional = sorted({*steps} & {*to_cache} - {*graph.boundary})
        groups = [
            run_stem(
                graph,
                self._values(positions[start : start + group]),
                self.prepared(options),
                self.context.threads,
                {number: slice_images(tensor, start, start + group) for number, tensor in cached.items()},
                additional,
            )
            for start in range(0, len(positions), group)
        ]
        tensors = [join_tensors(pieces) for pieces in zip(*groups, strict=True)]
        del groups
        cached.update(zip((*graph.boundary, *additional), tensors, strict=True))
        if cache is not None:
            cache.store(graph, options, positions, {number: cached[number] for number in to_cache})
        return tensors[: len(graph.boundary)], {*steps}

    def _values(self, positions: NDArray[np.intp]) -> Tensor:
        return host_tensor(np.ascontiguousarray(self._images[positions]))


class _PartialRuns:
    """Configurations of one option set, run on a few images at a time; see `race.PartialRuns`.

    likely, stem_cache: as `Evaluator.forward`; where likely, nothing can be measured.
    macs: executed so far, all images, with all cells of heads. cached_macs: as `Outputs`. failures: keys with values
    that are not finite, which no later run takes in.
    """

    def __init__(self, evaluator: Evaluator, options: int, likely: bool = False, stem_cache: StemCache | None = None) -> None:
        self._evaluator, self._options, self._likely, self._stem_cache = evaluator, options, likely, stem_cache
        self._decoder = evaluator.context.decoder
        self._images: list[NDArray[np.intp]] = []
        self._outputs: list[Outputs] = []
        # What was joined of all runs, which many configurations share.
        self._joined: dict[tuple[int, str], Any] = {}
        self.macs = self.cached_macs = 0
        self.failures: dict[str, FailedTrial] = {}

    @property
    def decoded_bytes(self) -> int:
        """Return the bytes that the fullest decoded output takes."""
        return max(int(tensor.nbytes) for outputs in self._outputs for output in outputs.decoded for tensor in output.values())

    def run(self, keys: Sequence[str], images: NDArray[np.intp], keep: Sequence[NDArray[np.float32]] = ()) -> None:
        """Run the configurations on the images at these positions. keep: as `Evaluator.forward`."""
        graph = self._evaluator.graph(self._options, keys)
        self._graph = graph
        outputs = self._evaluator.forward(graph, self._options, images, keep, self._likely, self._stem_cache)
        self._outputs.append(outputs)
        self._images.append(images)
        self._joined.clear()
        self.macs += graph.macs * len(images) - outputs.cached_macs
        self.cached_macs += outputs.cached_macs
        for key in keys if any(outputs.failures) else ():
            failures_by_head = zip(outputs.failures, graph.head_names(key), strict=True)
            causes = [failures[name] for failures, name in failures_by_head if name in failures]
            if causes:
                earliest = min(causes, key=lambda failure: failure.layer)
                self.failures[key] = FailedTrial(key, earliest.layer, earliest.reason)

    def run_all(self, key: str, keep: Sequence[NDArray[np.float32]] = ()) -> None:
        """Run one configuration on all images. Raises: EngineError that names the layer, for values that are not finite."""
        context = self._evaluator.context
        self.run((key,), np.arange(len(context.geometry)), keep)
        if self.failures:
            raise EngineError(f"{context.network.source}: {self.failures[key].reason}")

    def predictions(self, keys: Sequence[str], first_run: int) -> Any:
        """Return what some keys of the last run find in the images of all runs from `first_run` on, one key after the other."""
        decoder = self._decoder.of_images(np.concatenate(self._images[first_run:]))
        names = zip(*(self._graph.head_names(key) for key in keys), strict=True)
        return decoder.predictions(
            [
                decoder.join(
                    [outputs.decoded[output][name] for name in names_of_output for outputs in self._outputs[first_run:]]
                )
                for output, names_of_output in enumerate(names)
            ]
        )

    def noise(self, key: str) -> list[NDArray[np.float64]]:
        """Return the squared differences to the baseline of each output, by image of all runs."""
        return [self._noise(output, name, None) for output, name in self._names(key)]

    def measure(self, keys: Sequence[str]) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield the figures of each key, which all runs so far have had.

        It is run first on the images that none of them had; what fails there has no figures.
        """
        if not keys:
            return
        count, run_count = len(self._evaluator.context.geometry), len(self._images)
        remaining = np.setdiff1d(np.arange(count), np.concatenate([np.zeros(0, np.intp), *self._images]))
        if len(remaining):
            self.run(keys, remaining)
            keys = [key for key in keys if key not in self.failures]
        order = np.argsort(np.concatenate(self._images)) if len(self._images) > 1 else None
        for key in keys:
            outputs = [self._decoded(output, name, order) for output, name in self._names(key)]
            noise = (
                [Noise(self._evaluator.signal[output], self._noise(output, name, order)) for output, name in self._names(key)]
                if self._evaluator.signal
                else []
            )
            yield key, self._evaluator.scorer.measure(self._decoder.predictions(outputs), noise)
        # Other keys have not had the rest.
        del self._images[run_count:], self._outputs[run_count:]
        self._joined.clear()

    def _names(self, key: str) -> Iterator[tuple[int, str]]:
        return enumerate(self._graph.head_names(key))

    def _decoded(self, output: int, name: str, order: NDArray[np.intp] | None) -> Any:
        if (output, name) not in self._joined:
            pieces = [outputs.decoded[output][name] for outputs in self._outputs]
            self._joined[output, name] = self._decoder.join(pieces, order)
        return self._joined[output, name]

    def _noise(self, output: int, name: str, order: NDArray[np.intp] | None) -> NDArray[np.float64]:
        noise = np.concatenate([outputs.noise[output][name] for outputs in self._outputs])
        return noise if order is None else noise[order]
