# SPDX-License-Identifier: MIT
"""The work that configurations share, computed from the network alone.

What a layer computes depends on the precisions of its ancestors (itself included) and on nothing else: a dynamic range
is measured on the layer's own input. Under `quantization.integer_only` what reads an ancestor counts as one too, since
int8 gives int16 where int16 reads it. So a set of configurations costs each layer once per distinct assignment of its
ancestors, and two heads are independent of each other given the layers that both need.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Iterable, Sequence

import numpy as np

from mpnet.model.network import NETWORK_INPUT, NetworkSpec
from mpnet.sweep.problem.space import Space


def ancestors(network: NetworkSpec, integer_only: bool = False) -> tuple[tuple[int, ...], ...]:
    """Return for each layer the positions in a key (ascending) whose precisions decide its result.

    A convolution's own is among them. integer_only: those that read an ancestor decide too.
    """
    position = {layer.index: number for number, layer in enumerate(network.convolutions)}
    deciding: list[frozenset[int]] = []
    for layer in network.layers:
        ancestor_positions = frozenset[int]().union(*(deciding[i] for i in layer.inputs if i != NETWORK_INPUT))
        if layer.has_weights:
            readers = network.readers_of(layer.index) if integer_only else ()
            ancestor_positions |= {position[index] for index in (layer.index, *readers) if index in position}
        deciding.append(ancestor_positions)
    return tuple(tuple(sorted(positions)) for positions in deciding)


def restricted(key: str, positions: Sequence[int]) -> str:
    """Return the characters of a key at the given positions."""
    return "".join([key[position] for position in positions])


def forward_equivalents(network: NetworkSpec, space: Space) -> Fraction:
    """Work of every configuration of a space, for one image, in forward passes (by multiply-accumulates).

    Exact. 2^13 for YOLOv3-tiny's layers at two precisions: about 350; 3^13: about 18,000.
    """
    variable_of = {position: number for number, variable in enumerate(space.variables) for position in variable.positions}
    ancestor_positions = ancestors(network)
    total = 0
    for layer in network.convolutions:
        deciding = {variable_of[position] for position in ancestor_positions[layer.index]}
        total += layer.macs * math.prod(len(space.variables[number].codes) for number in deciding)
    return Fraction(len(space.option_sets) * total, network.macs)


def forward_equivalents_of(network: NetworkSpec, keys: Iterable[str]) -> Fraction:
    """Count the forward equivalents of a list of configurations that are walked together, under one option set."""
    distinct = sorted(set(keys))
    if not distinct:
        return Fraction(0)
    ancestor_positions = ancestors(network)
    # One row of bytes per configuration; rows of the columns that decide a layer are compared as wholes.
    codes = np.frombuffer("".join(distinct).encode("ascii"), np.uint8).reshape(len(distinct), -1)
    distinct_counts: dict[tuple[int, ...], int] = {}
    total = 0
    for layer in network.convolutions:
        positions = ancestor_positions[layer.index]
        if positions not in distinct_counts:
            rows = np.ascontiguousarray(codes[:, positions]).view(f"S{len(positions)}")
            distinct_counts[positions] = len(np.unique(rows))
        total += layer.macs * distinct_counts[positions]
    return Fraction(total, network.macs)
