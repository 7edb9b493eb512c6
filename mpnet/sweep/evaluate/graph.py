# SPDX-License-Identifier: MIT
"""The layout of many configurations as one computation: nodes that all of them share as far as they are alike."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Collection

import numpy as np

from mpnet.engine.layout import peak_bytes
from mpnet.engine.lowering import Lowering
from mpnet.engine.operations import Conversion
from mpnet.model.network import NETWORK_INPUT, NetworkSpec
from mpnet.sweep.evaluate.sharing import restricted


@dataclass
class Node:
    """One layer under one assignment of its ancestors, or a convolution and the pooling that alone reads it.

    inputs: numbers of the nodes that it reads, NETWORK_INPUT for the image. uses: how many nodes read it.
    bytes_: of its result and the conversions that may be kept with it, for one image. result_bytes: of its result alone.
    """

    layer: int
    lowering: Lowering
    inputs: tuple[int, ...]
    uses: int = 0
    bytes_: int = 0
    result_bytes: int = 0


@dataclass
class SharedGraph:
    """All nodes of a set of configurations, in the order in which they run.

    heads:     per output (head, else last layer), node number -> codes of its ancestors, its name.
    positions_by_layer: the positions of a key that decide a layer's result.
    positions: per output, the positions of a key that make up that name.
    finish:    per node number the conversion to fp32 of an output that is stored otherwise.
    split:     numbers of concatenations whose two inputs are kept apart, and which one others read as well, see `partial_sums`.
    """

    network: NetworkSpec
    keys: tuple[str, ...]
    nodes: list[Node] = field(default_factory=list)
    heads: list[dict[int, str]] = field(default_factory=list)
    positions_by_layer: tuple[tuple[int, ...], ...] = ()
    positions: list[tuple[int, ...]] = field(default_factory=list)
    finish: dict[int, Conversion] = field(default_factory=dict)
    split: dict[int, int] = field(default_factory=dict)

    @cached_property
    def unchecked(self) -> frozenset[int]:
        """Return outputs that no operation has checked to be finite."""
        return frozenset(number for names in self.heads for number in names if not self._checks_result(number))

    def _checks_result(self, number: int) -> bool:
        lowering = self.nodes[number].lowering
        producers = (*lowering.convert, *lowering.slices, *lowering.operations, lowering.after, self.finish.get(number))
        operations = [operation for operation in producers if operation is not None and not operation.is_head]
        if operations:
            return operations[-1].checks_result
        [source] = self.nodes[number].inputs
        return source != NETWORK_INPUT and self._checks_result(source)

    @property
    def macs(self) -> int:
        """Return the multiply-accumulates of all nodes, for one image."""
        return sum(self.network.layers[node.layer].macs for node in self.nodes)

    def head_names(self, key: str) -> tuple[str, ...]:
        """Return the names of a configuration's outputs, one each."""
        return tuple(restricted(key, positions) for positions in self.positions)

    @cached_property
    def stem(self) -> frozenset[int]:
        """Return the nodes that all configurations share: those of layers with one node, whose inputs are shared as well."""
        count = Counter(node.layer for node in self.nodes)
        stem: set[int] = set()
        for number, node in enumerate(self.nodes):
            if count[node.layer] == 1 and all(i == NETWORK_INPUT or i in stem for i in node.inputs):
                stem.add(number)
        return frozenset(stem)

    @cached_property
    def boundary(self) -> tuple[int, ...]:
        """Return the nodes of the stem that others read, or that are heads."""
        sources = {i for number, node in enumerate(self.nodes) if number not in self.stem for i in node.inputs}
        heads = {number for names in self.heads for number in names}
        return tuple(sorted(self.stem & (sources | heads)))

    def stem_steps(self, cached: Collection[int]) -> list[int]:
        """Return the nodes of the stem that have to run, in order, where the results of some are cached."""
        steps: set[int] = set()
        pending = list(self.boundary)
        while pending:
            number = pending.pop()
            if number != NETWORK_INPUT and number not in cached and number not in steps:
                steps.add(number)
                pending += self.nodes[number].inputs
        return sorted(steps)

    def peak_bytes(self, stem: bool) -> int:
        """Return the most memory that tensors need at one time for one image: of the stem, or of everything after it."""
        end = len(self.nodes)
        last_uses = list(range(end))
        for number, node in enumerate(self.nodes):
            for source in {*node.inputs} - {NETWORK_INPUT}:
                last_uses[source] = number
        lifetimes = [(4 * int(np.prod(self.network.in_shape)), 0, end)] if stem or self.reads_image else []
        for number, node in enumerate(self.nodes):
            is_boundary = number in self.boundary
            if stem and number in self.stem:
                lifetimes.append((node.bytes_, number, end if is_boundary else last_uses[number]))
            elif not stem and (is_boundary or number not in self.stem):
                lifetimes.append((node.bytes_, 0 if is_boundary else number, last_uses[number]))
        if not lifetimes:
            return 0
        sizes, starts, ends = zip(*lifetimes, strict=True)
        return peak_bytes(sizes, starts, ends, end)

    @cached_property
    def reads_image(self) -> bool:
        """Return whether a layer after the stem reads the image."""
        return any(NETWORK_INPUT in node.inputs for number, node in enumerate(self.nodes) if number not in self.stem)
