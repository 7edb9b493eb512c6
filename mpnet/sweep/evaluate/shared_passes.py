# SPDX-License-Identifier: MIT
"""Passes of many configurations at once: their shared computation as a graph, and the outputs of all of them on some images."""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.bind import LayerFailure
from mpnet.engine.devices import open_kernels
from mpnet.engine.execute import run_lowering
from mpnet.engine.prepare import Prepared
from mpnet.engine.tensor import Tensor, host_tensor
from mpnet.evaluation.signal import squared_sum
from mpnet.sweep.evaluate.context import SweepContext, values_of
from mpnet.sweep.evaluate.graph import SharedGraph
from mpnet.sweep.evaluate.head_results import HeadResults, Outputs
from mpnet.sweep.evaluate.likely_heads import LikelyHeads
from mpnet.sweep.evaluate.stem_cache import StemCache
from mpnet.sweep.evaluate.trie import build_graph, join_tensors, run_graph, run_stem, slice_images

LIVE_BYTES = 192 << 20
"""Memory that the tensors of one group of images may take in one worker."""
MAX_GROUP = 64
"""Images in one call after the stem: enough to make calls cheap, few enough that tensors stay in the cache."""


class SharedPasses:
    """The passes of one process over the images of a sweep. Packed weights are kept for the next pass."""

    def __init__(self, context: SweepContext) -> None:
        self.context = context
        self._images = values_of(context.images)
        self._prepared: dict[int, Prepared] = {}
        self._kernels = open_kernels(context.isa, context.device, falls_back=context.falls_back)

    @property
    def image_count(self) -> int:
        """Return the number of the sweep's images."""
        return len(self._images)

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
    def _likely(self) -> LikelyHeads:
        return LikelyHeads(self.context.network, self.context.decoder)

    def graph(self, options: int, keys: Sequence[str]) -> SharedGraph:
        """Return the shared computation of configurations."""
        return build_graph(self.context.network, keys, self.context.options[options].engine, self.context.unweighted)

    def forward(
        self,
        graph: SharedGraph,
        options: int,
        images: NDArray[np.intp],
        keep: Sequence[NDArray[np.float32]] = (),
        likely: bool = False,
        stem_cache: StemCache | None = None,
        is_decoded: bool = True,
    ) -> Outputs:
        """Return the outputs of all configurations of the graph on the images at these positions.

        Outputs with values that are not finite are left out; once all configurations have failed, the other images as well.
        keep:       gets the tensors themselves.
        likely:     compute those cells of a head alone that can have boxes, and no differences to the baseline.
        stem_cache: has what the last call left for this one; without it nothing is cached.
        is_decoded: whether boxes or classes are wanted; else differences to the baseline alone.

        The stem, whose tensors are large, goes through in small groups of images; what comes after it in larger ones,
        since it is done for every configuration and each step costs a call.
        """
        stem_group_size = max(1, min(self.context.group, LIVE_BYTES // max(1, graph.peak_bytes(stem=True))))
        group_size = max(stem_group_size, min(MAX_GROUP, LIVE_BYTES // max(1, graph.peak_bytes(stem=False))))
        results = HeadResults(self.context, graph, self._likely, keep, [] if likely else self._baseline_heads, is_decoded)
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
