# SPDX-License-Identifier: MIT
"""Outputs of many configurations, collected while groups of images run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.bind import LayerFailure
from mpnet.engine.tensor import Tensor
from mpnet.evaluation.signal import squared_sum
from mpnet.sweep.evaluate.context import SweepContext
from mpnet.sweep.evaluate.graph import SharedGraph
from mpnet.sweep.evaluate.likely_heads import LikelyHeads
from mpnet.trial.kit import Decoded


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs of configurations on some images.

    Per output, by name of its ancestors' codes: what was decoded and, where it was asked for, squared differences to the
    baseline by image; and, as `failures`, why there is no such output.

    cached_macs: multiply-accumulates that were not executed, since the tensors were kept.
    """

    decoded: list[dict[str, Decoded]]
    noise: list[dict[str, NDArray[np.float64]]]
    failures: list[dict[str, LayerFailure]]
    cached_macs: int = 0


class HeadResults:
    """Decoded heads of all configurations of a graph, and their differences to the baseline, by group of images.

    keep:     gets the tensors themselves, by output. baseline: outputs that differences are taken to, none: no differences.
    is_decoded: whether boxes or classes are wanted; else differences alone.
    """

    def __init__(
        self,
        context: SweepContext,
        graph: SharedGraph,
        likely: LikelyHeads,
        keep: Sequence[NDArray[np.float32]],
        baseline: Sequence[NDArray[np.float32]],
        is_decoded: bool = True,
    ) -> None:
        self._context, self._graph, self._likely, self._is_decoded = context, graph, likely, is_decoded
        self._keep, self._baseline = keep, baseline
        self._decoded: list[dict[str, list[Decoded]]] = [{} for _ in graph.heads]
        self._noise: list[dict[str, list[NDArray[np.float64]]]] = [{} for _ in graph.heads]

    def receiver(self, start: int, positions: NDArray[np.intp]) -> Callable[[int, str, Tensor], None]:
        """Return what takes a head's tensor of the images at these positions; start: of them among all that run."""
        geometry = self._context.geometry[positions]
        baseline = [head[positions] for head in self._baseline]

        def receive(head: int, name: str, tensor: Tensor) -> None:
            if self._is_decoded:
                self._decoded[head].setdefault(name, []).append(self._likely.decode(head, tensor, geometry))
            if self._keep:
                self._keep[head][start : start + len(geometry)] = tensor.host()
            elif baseline:
                self._noise[head].setdefault(name, []).append(squared_sum(tensor.floats(), baseline[head]))

        return receive

    def outputs(self, failures: Mapping[int, LayerFailure], cached_macs: int) -> Outputs:
        """Join the groups. failures: by node of the graph; cached_macs: as `Outputs`."""
        failures_by_head = [
            {name: failures[node] for node, name in names.items() if node in failures} for names in self._graph.heads
        ]
        return Outputs(
            [
                {name: self._context.decoder.join(pieces) for name, pieces in head.items() if name not in head_failures}
                for head, head_failures in zip(self._decoded, failures_by_head, strict=True)
            ],
            [{name: np.concatenate(pieces) for name, pieces in head.items()} for head in self._noise],
            failures_by_head,
            cached_macs,
        )
