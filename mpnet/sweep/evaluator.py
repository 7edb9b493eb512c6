"""Figures of many configurations: shared prefixes forward, each output decoded once, then joined and measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.assign import assign_key
from mpnet.engine.cost import CostModel
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.tensor import Tensor
from mpnet.evaluation.signal import squared_sum
from mpnet.formats.cache import open_cache
from mpnet.kernels.isa import kernels
from mpnet.spec.measures import trial_costs
from mpnet.speed.latency import predicted_ms
from mpnet.sweep.context import Baseline, SweepContext, values_of
from mpnet.sweep.rule_out import Elimination
from mpnet.sweep.scoring import Noise, Scorer
from mpnet.sweep.store import Trial
from mpnet.sweep.trie import Graph, build_graph, join_tensors, run_graph, run_stem
from mpnet.sweep.units import Unit, UnitResult
from mpnet.trial.task import Decoder, kit_of, task_of

LIVE_BYTES = 192 << 20
"""Memory that the tensors of one group of pictures may take in one worker."""
MAX_GROUP = 64
"""Pictures in one call after the stem: enough to make calls cheap, few enough that tensors stay in the cache."""


@dataclass(frozen=True, eq=False)
class _Outputs:
    """What the forward part leaves: per output and name of its ancestors' codes, what was decoded, noise, all pictures."""

    decoded: list[dict[str, Any]]
    noise: list[dict[str, Noise]]


class Evaluator:
    """Evaluates units in one process. Packed weights are kept for the next unit."""

    def __init__(self, context: SweepContext) -> None:
        self.context = context
        self._pictures = values_of(context.pictures)
        self._prepared: dict[int, Prepared] = {}
        self._costs: dict[int, CostModel] = {}
        self._kernels = kernels(None if context.isa == "auto" else context.isa)

    def prepared(self, options: int) -> Prepared:
        """Packed weights under an option set."""
        if options not in self._prepared:
            context, chosen = self.context, self.context.options[options]
            self._prepared[options] = Prepared(
                context.network, context.weights, self._kernels, batch_norm=chosen.engine.batch_norm,
                equalise=chosen.engine.equalise, channel_means=chosen.channel_means, lessons=chosen.lessons,
                cache=open_cache(),
            )
        return self._prepared[options]

    @cached_property
    def _baseline_heads(self) -> list[NDArray[np.float32]]:
        return [] if self.context.baseline is None else [values_of(a) for a in self.context.baseline.outputs]

    @cached_property
    def _signal(self) -> list[NDArray[np.float64]]:
        return [np.concatenate([squared_sum(np.ascontiguousarray(head[i:i + 1])) for i in range(len(head))])
                for head in self._baseline_heads]

    @cached_property
    def scorer(self) -> Scorer:
        """Measures findings."""
        context = self.context
        return Scorer(
            context.dataset, kit_of(task_of(context.network)), baseline=context.baseline.found if context.baseline else None,
            select=context.select, report=context.report, wanted=context.wanted,
        )

    @cached_property
    def _elimination(self) -> Elimination:
        context = self.context
        return Elimination(context.dataset, kit_of(task_of(context.network)),
                           context.baseline.found if context.baseline else None, context.select)

    def graph(self, unit: Unit) -> Graph:
        """The shared computation of a unit."""
        return build_graph(self.context.network, unit.keys, self.context.options[unit.options].engine, self.context.own)

    def evaluate(self, unit: Unit) -> UnitResult:
        """All figures of a unit's configurations, but for those that its rivals beat.

        Raises: EngineError for values that are not finite.
        """
        if unit.rivals is None:
            return self._measured(unit)
        macs = 0

        def find(keys: Sequence[str], pictures: NDArray[np.intp]) -> Iterator[Any]:
            nonlocal macs
            graph = self.graph(replace(unit, keys=tuple(keys)))
            macs += graph.macs * len(pictures)
            outputs, decoder = self._forward(graph, unit.options, pictures), self.context.decoder.of_images(pictures)
            return (self._found(graph, outputs, key, decoder) for key in keys)

        left = self._elimination.left(unit.keys, unit.rivals, find, lambda key: self.costs(unit.options, key))
        measured = self._measured(replace(unit, keys=left)) if left else UnitResult(unit, (), 0)
        return UnitResult(unit, measured.trials, measured.macs + macs, tuple(sorted({*unit.keys} - {*left})))

    def _measured(self, unit: Unit) -> UnitResult:
        graph = self.graph(unit)
        heads = self._forward(graph, unit.options)
        trials = []
        for key in unit.keys:
            noise = [heads.noise[h][name] for h, name in enumerate(graph.head_names(key))] if self._baseline_heads else []
            measured = self.scorer.measure(self._found(graph, heads, key, self.context.decoder), noise)
            trials.append(Trial(key, {**measured, **self.costs(unit.options, key)}))
        return UnitResult(unit, tuple(trials), graph.macs * len(self._pictures))

    def found(self, options: int, key: str) -> Any:
        """What one configuration finds: the bits that its trial was measured on."""
        graph = self.graph(Unit(options, (key,)))
        return self._found(graph, self._forward(graph, options), key, self.context.decoder)

    def _found(self, graph: Graph, outputs: _Outputs, key: str, decoder: Decoder[Any]) -> Any:
        return decoder.found([outputs.decoded[o][name] for o, name in enumerate(graph.head_names(key))])

    def baseline(self, key: str) -> Baseline:
        """Run a configuration as the one that others are compared with."""
        graph = self.graph(Unit(0, (key,)))
        count = len(self._pictures)
        tensors: list[NDArray[np.float32]] = [
            np.empty((count, *shape), np.float32) for shape in self.context.network.output_shapes
        ]
        outputs = self._forward(graph, 0, keep=tensors)
        decoded_bytes = max(found.nbytes for output in outputs.decoded for found in output.values())
        return Baseline(key, self._found(graph, outputs, key, self.context.decoder), tuple(tensors), decoded_bytes)

    def costs(self, options: int, key: str) -> dict[str, float]:
        """The costs of a configuration, as `mpnet run` counts them; with a latency table the predicted time."""
        context, engine = self.context, self.context.options[options].engine
        if options not in self._costs:
            self._costs[options] = CostModel(context.network, engine, context.own)
        costs = self._costs[options].costs(key)
        found = {name: float(costs[name]) for name in trial_costs() if name in costs}
        if context.step_ms:
            plan = build_plan(context.network, assign_key(context.network, key), engine)
            found["latency_ms"] = predicted_ms(plan, context.step_ms)
        return found

    def _forward(
        self, graph: Graph, options: int, pictures: NDArray[np.intp] | None = None, keep: Sequence[NDArray[np.float32]] = (),
    ) -> _Outputs:
        """Outputs of all configurations of the graph, all pictures or those at some positions; noise of all pictures only.

        The stem, whose tensors are large, goes through in small groups of pictures; what comes after it in larger ones,
        since it is done for every configuration and each step costs a call.
        """
        context, prepared = self.context, self.prepared(options)
        chosen = np.arange(len(self._pictures)) if pictures is None else pictures
        small = max(1, min(context.group, LIVE_BYTES // max(1, graph.peak_bytes(stem=True))))
        group = max(small, min(MAX_GROUP, LIVE_BYTES // max(1, graph.peak_bytes(stem=False))))
        parts: list[dict[str, list[Any]]] = [{} for _ in graph.heads]
        noise: list[dict[str, list[NDArray[np.float64]]]] = [{} for _ in graph.heads]
        for start in range(0, len(chosen), group):
            stop = min(start + group, len(chosen))

            def on_head(head: int, name: str, tensor: Tensor, start: int = start, stop: int = stop) -> None:
                parts[head].setdefault(name, []).append(
                    context.decoder.decode(head, tensor.data, context.geometry[chosen[start:stop]]))
                if keep:
                    keep[head][start:stop] = tensor.data
                elif self._baseline_heads and pictures is None:
                    noise[head].setdefault(name, []).append(
                        squared_sum(tensor.data, self._baseline_heads[head][start:stop]))

            stems = [run_stem(graph, self._values(chosen[first:min(first + small, stop)]), prepared, context.threads)
                     for first in range(start, stop, small)]
            joined = [join_tensors(tensors) for tensors in zip(*stems, strict=True)]
            del stems
            picture = self._values(chosen[start:stop]) if graph.reads_picture else None
            run_graph(graph, joined, prepared, on_head, context.threads, picture)
        return _Outputs(
            [{name: context.decoder.join(found) for name, found in head.items()} for head in parts],
            [{name: Noise(self._signal[h], np.concatenate(found)) for name, found in head.items()}
             for h, head in enumerate(noise)],
        )

    def _values(self, positions: NDArray[np.intp]) -> Tensor:
        return Tensor(np.ascontiguousarray(self._pictures[positions]))
