"""Many configurations as one computation: every layer once per distinct assignment of its ancestors.

Sorted by their keys, configurations form a trie; steps on the way to a leaf are shared by all leaves below, and two
heads share only what both need. The computation is laid out once as nodes in an order that keeps few tensors alive,
and is then run for one group of pictures after the other. Nothing is approximated: a node computes what a direct run
of any of its configurations computes, from the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Iterable, Mapping

import numpy as np

from mpnet.engine.execute import named_error, run_lowering
from mpnet.engine.lowering import Lowering, layer_precision, lower_layer, result_storage
from mpnet.engine.options import EngineOptions
from mpnet.engine.prepare import Prepared
from mpnet.engine.tensor import Tensor
from mpnet.errors import ConfigError, KernelError, PrecisionError
from mpnet.experiments.sharing import ancestors, restricted
from mpnet.spec.network import PICTURE, NetworkSpec
from mpnet.spec.precision import BY_CODE, FP32, Precision

OnHead = Callable[[int, str, Tensor], None]


@dataclass
class Node:
    """One layer under one assignment of its ancestors.

    inputs: numbers of the nodes that it reads, PICTURE for the picture. uses: how many nodes read it.
    bytes_: of its result and the conversions that may be kept with it, for one image.
    """

    layer: int
    precision: Precision
    lowering: Lowering
    inputs: tuple[int, ...]
    uses: int = 0
    bytes_: int = 0


@dataclass
class Graph:
    """All nodes of a set of configurations, in the order in which they run.

    heads:     per yolo layer, node number -> codes of the head's ancestors, its name.
    positions: per yolo layer, the positions of a key that make up that name.
    macs:      multiply-accumulates of all nodes, for one picture.
    """

    network: NetworkSpec
    keys: tuple[str, ...]
    nodes: list[Node] = field(default_factory=list)
    heads: list[dict[int, str]] = field(default_factory=list)
    positions: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def macs(self) -> int:
        return sum(self.network.layers[node.layer].macs for node in self.nodes)

    def head_names(self, key: str) -> tuple[str, ...]:
        """What a configuration's heads are called, one name per yolo layer."""
        return tuple(restricted(key, positions) for positions in self.positions)

    def peak_bytes(self) -> int:
        """Most memory that tensors need at one time, for one picture, the picture included."""
        left = [node.uses for node in self.nodes]
        live = peak = 4 * int(np.prod(self.network.in_shape))
        for node in self.nodes:
            live += node.bytes_
            peak = max(peak, live)
            for number in {*node.inputs} - {PICTURE}:
                left[number] -= node.inputs.count(number)
                if left[number] == 0:
                    live -= self.nodes[number].bytes_
            if node.uses == 0:
                live -= node.bytes_
        return peak


def build_graph(
    network: NetworkSpec, keys: Iterable[str], options: EngineOptions, own: Mapping[int, Precision] | None = None
) -> Graph:
    """Lay out the computation of the configurations `keys` (codes of the layers with weights).

    own: layers without weights that have a precision of their own.
    Raises: ConfigError for a network without yolo layers or keys of another length; PrecisionError for calibrated
    ranges that are missing.
    """
    if not network.yolos:
        raise ConfigError(f"{network.source}: has no [yolo] layer, so there is nothing to sweep for")
    graph = Graph(network, tuple(sorted(set(keys))))
    above = ancestors(network)
    position = {layer.index: number for number, layer in enumerate(network.convolutions)}
    if any(len(key) != len(position) for key in graph.keys):
        raise ConfigError(f"a configuration of {network.source} has {len(position)} codes, one per layer with weights")
    graph.positions = [above[yolo.index] for yolo in network.yolos]
    graph.heads = [{} for _ in network.yolos]
    made: dict[tuple[int, str], int] = {}
    lowered: dict[tuple[int, Precision, tuple[Precision, ...]], Lowering] = {}

    def stored(node: int) -> Precision:
        return FP32 if node == PICTURE else graph.nodes[node].lowering.result

    def node_of(index: int, key: str) -> int:
        name = (index, restricted(key, above[index]))
        if name in made:
            return made[name]
        layer = network.layers[index]
        inputs = tuple(PICTURE if i == PICTURE else node_of(i, key) for i in layer.inputs)
        sources = tuple(stored(node) for node in inputs)
        wanted = BY_CODE[key[position[index]]] if index in position else (own or {}).get(index)
        precision = layer_precision(layer, wanted, sources)
        rule = (index, precision, sources)
        if rule not in lowered:
            lowered[rule] = lower_layer(network, index, precision, sources, options)
        lowering = lowered[rule]
        size = np.dtype(result_storage(layer, precision).storage).itemsize
        # A result may be kept in all three storages at once: as it is, as fp16 or fp32, as int8.
        made[name] = number = len(graph.nodes)
        graph.nodes.append(Node(index, precision, lowering, inputs, 0, layer.activations * (size + 3)))
        for node in inputs:
            if node != PICTURE:
                graph.nodes[node].uses += 1
        return number

    for key in graph.keys:
        for head, yolo in enumerate(network.yolos):
            number = node_of(yolo.index, key)
            graph.heads[head].setdefault(number, restricted(key, above[yolo.index]))
    return graph


def run_graph(graph: Graph, picture: Tensor, prepared: Prepared, on_head: OnHead, threads: int = 1) -> None:
    """Compute all nodes for a group of pictures; tensors go as soon as nothing needs them any more.

    picture: fp32, (n, h, w, c). on_head: gets the number of the yolo layer, the head's name and the fp32 tensor that
    enters box decoding, once per distinct head.
    Raises: EngineError that names the layer, for values that are not finite.
    """
    left = [node.uses for node in graph.nodes]
    results: dict[int, Tensor] = {PICTURE: picture}
    head_of = {node: (head, name) for head, names in enumerate(graph.heads) for node, name in names.items()}
    for number, node in enumerate(graph.nodes):
        try:
            result = run_lowering(node.lowering, [results[i] for i in node.inputs], prepared, threads)
        except (KernelError, PrecisionError) as error:
            raise named_error(graph.network, node.layer, error) from None
        if node.uses:
            results[number] = result
        if number in head_of:
            on_head(*head_of[number], result)
        for source in node.inputs:
            if source != PICTURE:
                left[source] -= 1
                if left[source] == 0:
                    del results[source]
