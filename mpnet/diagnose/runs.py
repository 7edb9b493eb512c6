# SPDX-License-Identifier: MIT
"""One image through many configurations that differ in which layers are raised, each once, shared layers computed once."""

from __future__ import annotations

from typing import Iterable, Sequence

import numpy as np

from mpnet.detection.preprocess import geometry_array
from mpnet.diagnose.objects import Finds, find
from mpnet.engine.assign import PrecisionPlan
from mpnet.engine.tensor import Tensor, host_tensor
from mpnet.evaluation.match import Truths
from mpnet.model.network import NetworkSpec
from mpnet.model.plan_key import split_key
from mpnet.sweep.evaluate.trie import build_graph, run_graph, run_stem
from mpnet.trial.kit import Decoded, detections_of
from mpnet.trial.workbench import Workbench

Layers = frozenset[int]
AT_ONCE = 128
"""Configurations of one walk: their heads are held until all of them are decoded."""


class ImageRuns:
    """A configuration on one image with layers raised to the baseline's precisions.

    position: of the image. truths: its objects.
    """

    def __init__(
        self, bench: Workbench, configuration: PrecisionPlan, baseline: PrecisionPlan, position: int, truths: Truths
    ) -> None:
        self._bench, self._configuration, self._baseline, self._truths = bench, configuration, baseline, truths
        batch = bench.inputs.take([position])
        self._image, self._geometry = host_tensor(batch.x), geometry_array(batch.geometry)
        self._decoder = bench.decoder.of_images(np.array([position]))
        self.finds_by_layers: dict[Layers, Finds] = {}

    def run(self, sets: Iterable[Layers]) -> None:
        """Run those that did not run yet of these sets of raised layers."""
        remaining = [layers for layers in dict.fromkeys(sets) if layers not in self.finds_by_layers]
        for start in range(0, len(remaining), AT_ONCE):
            self._run({self._codes(layers): layers for layers in remaining[start : start + AT_ONCE]})

    def __getitem__(self, layers: Layers) -> Finds:
        self.run([layers])
        return self.finds_by_layers[layers]

    def _codes(self, layers: Layers) -> str:
        return split_key(raise_key(self._bench.network, self._configuration, self._baseline, layers))[0]

    def _run(self, keys: dict[str, Layers]) -> None:
        bench, prepared = self._bench, self._bench.prepared
        graph = build_graph(bench.network, keys, bench.options, {i: self._configuration[i] for i in self._configuration.keyed})
        decoded: list[dict[str, Decoded]] = [{} for _ in graph.heads]

        def on_head(head: int, name: str, tensor: Tensor) -> None:
            decoded[head][name] = self._decoder.decode(head, tensor.floats(), self._geometry)

        stem = run_stem(graph, self._image, prepared)
        run_graph(graph, stem, prepared, on_head, image=self._image if graph.reads_image else None)
        for key, layers in keys.items():
            outputs = [self._decoder.join([decoded[head][name]]) for head, name in enumerate(graph.head_names(key))]
            self.finds_by_layers[layers] = find(detections_of(self._decoder.predictions(outputs)), self._truths)


def raise_key(network: NetworkSpec, configuration: PrecisionPlan, baseline: PrecisionPlan, layers: Layers) -> str:
    """Return the key of a configuration with layers with weights raised to the baseline's precisions."""
    codes, keyed_codes = split_key(configuration.key)
    baseline_codes = split_key(baseline.key)[0]
    raised = [layer.index in layers for layer in network.convolutions]
    return "".join(baseline_codes[i] if is_raised else codes[i] for i, is_raised in enumerate(raised)) + keyed_codes


def list_prefixes(order: Sequence[int]) -> list[Layers]:
    """Return the sets that come of raising layers one after the other, without the empty one."""
    return [frozenset(order[: end + 1]) for end in range(len(order))]
