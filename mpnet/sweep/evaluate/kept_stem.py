# SPDX-License-Identifier: MIT
"""Tensors of the layers that all configurations of a part share, kept for the next part, which begins alike.

Parts of a unit are computed one after the other, mostly by the same worker. What the next one shares with the last is
taken from here instead of being computed again, so that parts can be short: the same tensors, and so the same bits.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.tensor import Tensor
from mpnet.sweep.evaluate.graph import SharedGraph
from mpnet.sweep.evaluate.sharing import restricted

KEPT_BYTES = 192 << 20
"""Memory that kept tensors may take in one worker."""

_Name = tuple[int, str]


class KeptStem:
    """What was kept, by group of images. Threads may share one.

    images: that a part runs on in all; each gets an equal share of the memory.
    """

    def __init__(self, images: int) -> None:
        self._per_image = KEPT_BYTES // max(1, images)
        self._groups: dict[bytes, dict[_Name, Tensor]] = {}
        self._lock = threading.Lock()

    def known(self, graph: SharedGraph, options: int, images: NDArray[np.intp]) -> dict[int, Tensor]:
        """The nodes of the graph's stem whose tensors are there. options: number of the option set."""
        with self._lock:
            kept = self._groups.get(_group(options, images), {})
        return {number: kept[name] for number, name in self._names(graph) if name in kept}

    def worth_keeping(self, graph: SharedGraph, numbers: Collection[int]) -> list[int]:
        """Those of some nodes of the stem that memory has room for, the last first: most was computed for them."""
        left, chosen = self._per_image, []
        for number in sorted(numbers, reverse=True):
            if graph.nodes[number].result_bytes <= left:
                left -= graph.nodes[number].result_bytes
                chosen.append(number)
        return chosen

    def keep(self, graph: SharedGraph, options: int, images: NDArray[np.intp], tensors: Mapping[int, Tensor]) -> None:
        """Keep tensors of nodes of the stem instead of what these images had."""
        group = _group(options, images)
        # Conversions are made for those who read a tensor now.
        kept = {name: replace(tensors[i], converted={}, part_sums={}) for i, name in self._names(graph) if i in tensors}
        with self._lock:
            self._groups.pop(group, None)
            self._groups[group] = kept
            while len(self._groups) > 1 and sum(map(_bytes, self._groups.values())) > KEPT_BYTES:
                del self._groups[next(iter(self._groups))]

    def _names(self, graph: SharedGraph) -> list[tuple[int, _Name]]:
        """What decides the results of the stem's nodes: the layer, and the precisions of its ancestors."""
        key, nodes = graph.keys[0], graph.nodes
        layers = ((number, nodes[number].layer) for number in sorted(graph.stem))
        return [(number, (layer, restricted(key, graph.above[layer]))) for number, layer in layers]


def _group(options: int, images: NDArray[np.intp]) -> bytes:
    return b"%d:" % options + images.tobytes()


def _bytes(tensors: Mapping[_Name, Tensor]) -> int:
    return sum(tensor.data.nbytes for tensor in tensors.values())
