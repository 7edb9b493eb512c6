"""Many configurations as one computation: every layer once per distinct assignment of its ancestors.

Sorted by their keys, configurations form a trie; steps on the way to a leaf are shared by all leaves below, and two
heads share only what both need. The computation is laid out once as nodes in an order that keeps few tensors alive,
and is then run for one group of images after the other. Nothing is approximated: a node computes what a direct run
of any of its configurations computes, from the same bits.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Callable, Iterable, Mapping, Sequence

import numpy as np

from mpnet.engine.bind import named_error
from mpnet.engine.execute import convert, run_lowering
from mpnet.engine.layout import peak_bytes
from mpnet.engine.lowering import Lowering, Lowerings
from mpnet.engine.operations import Operation, conversion_between
from mpnet.engine.options import EngineOptions
from mpnet.engine.prepare import Prepared
from mpnet.engine.tensor import CodeMap, Tensor
from mpnet.errors import ConfigError, KernelError, PrecisionError
from mpnet.model.network import NETWORK_INPUT, NetworkSpec
from mpnet.model.plan_key import split_key
from mpnet.model.precision import BY_CODE, FP32, Precision
from mpnet.sweep.partial_sums import Apart, find_apart, kept_bytes, run_apart
from mpnet.sweep.sharing import ancestors, restricted

OnHead = Callable[[int, str, Tensor], None]
Run = Callable[[Lowering, Sequence[Tensor], Prepared, int], Tensor]
Results = dict[int, Tensor | Apart]


@dataclass
class Node:
    """One layer under one assignment of its ancestors, or a convolution and the pooling that alone reads it.

    inputs: numbers of the nodes that it reads, NETWORK_INPUT for the image. uses: how many nodes read it.
    bytes_: of its result and the conversions that may be kept with it, for one image.
    """

    layer: int
    lowering: Lowering
    inputs: tuple[int, ...]
    uses: int = 0
    bytes_: int = 0


@dataclass
class Graph:
    """All nodes of a set of configurations, in the order in which they run.

    heads:     per output (head, else last layer), node number -> codes of its ancestors, its name.
    positions: per output, the positions of a key that make up that name.
    finish:    per node number the conversion to fp32 of an output that is stored otherwise.
    macs:      multiply-accumulates of all nodes, for one image.
    apart:     numbers of concatenations that are not written, see `partial_sums`.
    """

    network: NetworkSpec
    keys: tuple[str, ...]
    nodes: list[Node] = field(default_factory=list)
    heads: list[dict[int, str]] = field(default_factory=list)
    positions: list[tuple[int, ...]] = field(default_factory=list)
    finish: dict[int, Operation] = field(default_factory=dict)
    apart: dict[int, int] = field(default_factory=dict)

    @property
    def macs(self) -> int:
        return sum(self.network.layers[node.layer].macs for node in self.nodes)

    def head_names(self, key: str) -> tuple[str, ...]:
        """What a configuration's outputs are called, one name each."""
        return tuple(restricted(key, positions) for positions in self.positions)

    @cached_property
    def stem(self) -> frozenset[int]:
        """Nodes that all configurations share: those of layers with one node, whose inputs are shared as well."""
        count = Counter(node.layer for node in self.nodes)
        found: set[int] = set()
        for number, node in enumerate(self.nodes):
            if count[node.layer] == 1 and all(i == NETWORK_INPUT or i in found for i in node.inputs):
                found.add(number)
        return frozenset(found)

    @cached_property
    def boundary(self) -> tuple[int, ...]:
        """Nodes of the stem that others read, or that are heads."""
        read = {i for number, node in enumerate(self.nodes) if number not in self.stem for i in node.inputs}
        heads = {number for names in self.heads for number in names}
        return tuple(sorted(self.stem & (read | heads)))

    def peak_bytes(self, stem: bool) -> int:
        """Most memory that tensors need at one time for one image: of the stem, or of everything after it."""
        end = len(self.nodes)
        last = list(range(end))
        for number, node in enumerate(self.nodes):
            for source in {*node.inputs} - {NETWORK_INPUT}:
                last[source] = number
        lives = [(4 * int(np.prod(self.network.in_shape)), 0, end)] if stem or self.reads_image else []
        for number, node in enumerate(self.nodes):
            kept = number in self.boundary
            if stem and number in self.stem:
                lives.append((node.bytes_, number, end if kept else last[number]))
            elif not stem and (kept or number not in self.stem):
                lives.append((node.bytes_, 0 if kept else number, last[number]))
        if not lives:
            return 0
        sizes, first, gone = zip(*lives, strict=True)
        return peak_bytes(sizes, first, gone, end)

    @cached_property
    def reads_image(self) -> bool:
        """Whether a layer after the stem reads the image."""
        return any(NETWORK_INPUT in node.inputs for number, node in enumerate(self.nodes) if number not in self.stem)


def build_graph(
    network: NetworkSpec, keys: Iterable[str], options: EngineOptions, own: Mapping[int, Precision] | None = None
) -> Graph:
    """Lay out the computation of the configurations `keys`.

    own: layers without weights that have a precision of their own.
    Raises: ConfigError for keys of another length; PrecisionError for calibrated ranges that are missing.
    """
    graph = Graph(network, tuple(sorted(set(keys))))
    above = ancestors(network)
    position = {layer.index: number for number, layer in enumerate(network.convolutions)}
    readers = Counter(source for layer in network.layers for source in layer.inputs)
    if any(len(split_key(key)[0]) != len(position) for key in graph.keys):
        raise ConfigError(f"a configuration of {network.source} has {len(position)} codes, one per layer with weights")
    graph.positions = [above[index] for index in network.outputs]
    graph.heads = [{} for _ in network.outputs]
    made: dict[tuple[int, str], int] = {}
    lowerings = Lowerings(network, options, own)

    def stored(node: int) -> Precision:
        return FP32 if node == NETWORK_INPUT else graph.nodes[node].lowering.result

    def node_of(index: int, key: str) -> int:
        name = (index, restricted(key, above[index]))
        if name in made:
            return made[name]
        layer = network.layers[index]
        inputs = tuple(NETWORK_INPUT if i == NETWORK_INPUT else node_of(i, key) for i in layer.inputs)
        wanted = BY_CODE[key[position[index]]] if index in position else None
        lowering = lowerings.of(index, wanted, tuple(stored(node) for node in inputs))
        size = lowering.result.stored.item_bytes
        # A result may be kept in all three storages at once: as it is, as fp16 or fp32, as int8.
        bytes_ = layer.activations * (size + 3)
        if inputs[0] != NETWORK_INPUT and readers[layer.inputs[0]] == 1:
            before = graph.nodes[inputs[0]]
            joined = _with_pool(before.lowering, lowering)
            if joined is not None:
                before.lowering, before.bytes_ = joined, bytes_
                made[name] = inputs[0]
                return inputs[0]
        made[name] = number = len(graph.nodes)
        graph.nodes.append(Node(index, lowering, inputs, 0, bytes_))
        for node in inputs:
            if node != NETWORK_INPUT:
                graph.nodes[node].uses += 1
        return number

    for key in graph.keys:
        for head, index in enumerate(network.outputs):
            number = node_of(index, key)
            graph.heads[head].setdefault(number, restricted(key, above[index]))
            conversion = lowerings.one(conversion_between(stored(number), FP32))
            if conversion is not None:
                graph.finish[number] = conversion
    graph.apart = find_apart(graph)
    for number, kept in kept_bytes(graph).items():
        graph.nodes[number].bytes_ += kept
    return graph


def _with_pool(convolution: Lowering, pool: Lowering) -> Lowering | None:
    """A convolution and the pooling of its result as one layer, where that is possible."""
    if convolution.rest or pool.rest or convolution.after is not None or pool.after is not None:
        return None
    if any(pool.convert) or any(pool.slices):
        return None
    joined = None if convolution.main is None or pool.main is None else convolution.main.joined(pool.main)
    return None if joined is None else replace(convolution, main=joined)


def run_stem(graph: Graph, image: Tensor, prepared: Prepared, threads: int = 1) -> list[Tensor]:
    """The tensors of the boundary for a group of images, in its order. Raises: as `run_graph`."""
    results: Results = {NETWORK_INPUT: image}
    left = Counter({number: node.uses for number, node in enumerate(graph.nodes)})
    left.update(graph.boundary)
    for number in sorted(graph.stem):
        results[number] = _run_node(graph, number, results, left, prepared, threads)
    # Conversions were made for consumers inside the stem; those outside have their own, for larger groups.
    return [replace(_tensor(results[number]), converted={}) for number in graph.boundary]


def join_tensors(parts: Sequence[Tensor]) -> Tensor:
    """Tensors of consecutive groups of images as one."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    maps = [part.code_map.params for part in parts if part.code_map is not None]
    code_map = CodeMap(np.concatenate(maps)) if maps else None
    ranges = None if first.ranges is None else np.concatenate([p.ranges for p in parts if p.ranges is not None])
    return Tensor(np.concatenate([part.data for part in parts]), first.precision, code_map, ranges)


def run_graph(
    graph: Graph,
    stem: Sequence[Tensor],
    prepared: Prepared,
    on_head: OnHead,
    threads: int = 1,
    image: Tensor | None = None,
    run: Run = run_lowering,
) -> None:
    """Compute all nodes after the stem for a group of images; tensors go as soon as nothing needs them any more.

    stem: of `run_stem`, joined. image: fp32, (n, h, w, c), where a layer after the stem reads it. on_head: gets the
    number of the output, its name and its fp32 tensor, once per distinct output. run: what gives a layer's result.
    Raises: EngineError that names the layer, for values that are not finite.
    """
    head_of = {node: (head, name) for head, names in enumerate(graph.heads) for node, name in names.items()}
    results: Results = dict(zip(graph.boundary, stem, strict=True))
    if image is not None:
        results[NETWORK_INPUT] = image
    left = Counter(i for number, node in enumerate(graph.nodes) if number not in graph.stem for i in node.inputs)
    for number, node in enumerate(graph.nodes):
        if number in graph.stem:
            if number in head_of:
                on_head(*head_of[number], convert(_tensor(results[number]), graph.finish.get(number), prepared, threads))
            continue
        result = _run_node(graph, number, results, left, prepared, threads, run)
        if node.uses:
            results[number] = result
        if number in head_of:
            on_head(*head_of[number], convert(_tensor(result), graph.finish.get(number), prepared, threads))


def _run_node(
    graph: Graph, number: int, results: Results, left: Counter[int], prepared: Prepared, threads: int, run: Run = run_lowering
) -> Tensor | Apart:
    """A node's result. left: how often each tensor is still needed; what was needed for the last time goes, but for the
    image, which belongs to the caller."""
    node = graph.nodes[number]
    inputs = [results[i] for i in node.inputs]
    try:
        found = _computed(graph, number, inputs, prepared, threads, run)
    except (KernelError, PrecisionError) as error:
        raise named_error(graph.network, node.layer, error) from None
    for source in {*node.inputs} - {NETWORK_INPUT}:
        left[source] -= node.inputs.count(source)
        if left[source] == 0:
            del results[source]
    return found


def _computed(
    graph: Graph, number: int, inputs: Sequence[Tensor | Apart], prepared: Prepared, threads: int, run: Run
) -> Tensor | Apart:
    lowering = graph.nodes[number].lowering
    if len(inputs) == 1 and isinstance(inputs[0], Apart):
        return run_apart(lowering, inputs[0], prepared, threads)
    tensors = [x.whole(prepared, threads) if isinstance(x, Apart) else x for x in inputs]
    if number in graph.apart:
        return Apart(lowering, (tensors[0], tensors[1]), graph.apart[number])
    return run(lowering, tensors, prepared, threads)


def _tensor(x: Tensor | Apart) -> Tensor:
    assert isinstance(x, Tensor)
    return x
