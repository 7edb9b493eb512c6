# SPDX-License-Identifier: MIT
"""Tensors of the layers that all configurations of a chunk share, cached for the next chunk, which begins alike.

Chunks of a unit are computed one after the other, mostly by the same worker. What the next one shares with the last is
taken from here instead of being computed again, so that chunks can be short: the same tensors, and so the same bits.
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

CACHED_BYTES = 192 << 20
"""Memory that cached tensors may take in one worker."""

_Name = tuple[int, str]


class StemCache:
    """Cached tensors by group of images and option set, so that those of two weights never meet. Threads may share one.

    images: that a chunk runs on in all; each gets an equal share of the memory.
    """

    def __init__(self, images: int) -> None:
        self._bytes_per_image = CACHED_BYTES // max(1, images)
        self._groups: dict[bytes, dict[_Name, Tensor]] = {}
        self._lock = threading.Lock()

    def find(self, graph: SharedGraph, options: int, images: NDArray[np.intp]) -> dict[int, Tensor]:
        """Return the tensors that are cached of the graph's stem, by node. options: number of the option set."""
        with self._lock:
            cached = self._groups.get(_group(options, images), {})
        return {number: cached[name] for number, name in self._names(graph) if name in cached}

    def select(self, graph: SharedGraph, numbers: Collection[int]) -> list[int]:
        """Return those of some nodes of the stem that memory has room for, the last first: most was computed for them."""
        free_bytes, selected = self._bytes_per_image, []
        for number in sorted(numbers, reverse=True):
            if graph.nodes[number].result_bytes <= free_bytes:
                free_bytes -= graph.nodes[number].result_bytes
                selected.append(number)
        return selected

    def store(self, graph: SharedGraph, options: int, images: NDArray[np.intp], tensors: Mapping[int, Tensor]) -> None:
        """Cache tensors of nodes of the stem in place of what these images had."""
        group = _group(options, images)
        # Conversions are made for those who read a tensor now.
        cached = {name: replace(tensors[i], converted={}, channel_sums={}) for i, name in self._names(graph) if i in tensors}
        with self._lock:
            self._groups.pop(group, None)
            self._groups[group] = cached
            while len(self._groups) > 1 and sum(map(_bytes, self._groups.values())) > CACHED_BYTES:
                del self._groups[next(iter(self._groups))]

    def _names(self, graph: SharedGraph) -> list[tuple[int, _Name]]:
        """Return what decides the results of the stem's nodes: the layer, and the precisions of its ancestors."""
        key, nodes = graph.keys[0], graph.nodes
        layers = ((number, nodes[number].layer) for number in sorted(graph.stem))
        return [(number, (layer, restricted(key, graph.positions_by_layer[layer]))) for number, layer in layers]


def _group(options: int, images: NDArray[np.intp]) -> bytes:
    return b"%d:" % options + images.tobytes()


def _bytes(tensors: Mapping[_Name, Tensor]) -> int:
    return sum(tensor.storage.nbytes for tensor in tensors.values())
