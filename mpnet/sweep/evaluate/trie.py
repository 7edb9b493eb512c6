# SPDX-License-Identifier: MIT
"""Many configurations as one computation: every layer once per distinct assignment of its ancestors.

Sorted by their keys, configurations form a trie; steps on the way to a leaf are shared by all leaves below, and two
heads share only what both need. The computation is laid out once as nodes in an order that keeps few tensors alive,
and is then run for one group of images after the other. Nothing is approximated: a node computes what a direct run
of any of its configurations computes, from the same bits.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Callable, Iterable, Mapping, Sequence

import numpy as np

from mpnet.engine.bind import LayerFailure, named_error
from mpnet.engine.execute import convert, run_lowering
from mpnet.engine.lowering import Lowering, Lowerings
from mpnet.engine.operations import conversion_between
from mpnet.engine.options import EngineOptions
from mpnet.engine.prepare import Prepared
from mpnet.engine.tensor import CodeMap, Tensor
from mpnet.errors import ConfigError, KernelError, NonFiniteError, PrecisionError
from mpnet.model.network import NETWORK_INPUT, NetworkSpec
from mpnet.model.plan_key import split_key
from mpnet.model.precision import BY_CODE, FP32, Precision
from mpnet.sweep.evaluate.graph import Node, SharedGraph
from mpnet.sweep.evaluate.partial_sums import SplitConcat, count_sum_bytes, find_split_concats, run_split
from mpnet.sweep.evaluate.sharing import ancestors, restricted

OnHead = Callable[[int, str, Tensor], None]
RunLowering = Callable[[Lowering, Sequence[Tensor], Prepared, int], Tensor]
Results = dict[int, Tensor | SplitConcat]


def build_graph(
    network: NetworkSpec, keys: Iterable[str], options: EngineOptions, unweighted: Mapping[int, Precision] | None = None
) -> SharedGraph:
    """Lay out the computation of the configurations `keys`.

    unweighted: layers without weights that have a precision of their own.
    Raises: ConfigError for keys of another length; PrecisionError for calibrated ranges that are missing.
    """
    graph = SharedGraph(network, tuple(sorted(set(keys))))
    graph.positions_by_layer = positions_by_layer = ancestors(network, options.integer_only)
    position = {layer.index: number for number, layer in enumerate(network.convolutions)}
    readers = Counter(source for layer in network.layers for source in layer.inputs)
    if any(len(split_key(key)[0]) != len(position) for key in graph.keys):
        raise ConfigError(f"a configuration of {network.source} has {len(position)} codes, one per layer with weights")
    graph.positions = [positions_by_layer[index] for index in network.outputs]
    graph.heads = [{} for _ in network.outputs]
    numbers: dict[tuple[int, str], int] = {}
    lowerings = Lowerings(network, options, unweighted)

    def precision_of(node: int) -> Precision:
        return FP32 if node == NETWORK_INPUT else graph.nodes[node].lowering.result

    def node_of(index: int, key: str, precisions: Mapping[int, Precision]) -> int:
        name = (index, restricted(key, positions_by_layer[index]))
        if name in numbers:
            return numbers[name]
        layer = network.layers[index]
        inputs = tuple(NETWORK_INPUT if i == NETWORK_INPUT else node_of(i, key, precisions) for i in layer.inputs)
        input_precisions = tuple(precision_of(node) for node in inputs)
        lowering = lowerings.lower(
            index, precisions.get(index), input_precisions, lowerings.storage_for_readers(index, precisions)
        )
        size = lowering.result.stored.item_bytes
        # A result may be kept in all three storages at once: as it is, as fp16 or fp32, as int8.
        bytes_ = layer.activations * (size + 3)
        if inputs[0] != NETWORK_INPUT and readers[layer.inputs[0]] == 1:
            convolution = graph.nodes[inputs[0]]
            joined = _join_pool(convolution.lowering, lowering)
            if joined is not None:
                convolution.lowering, convolution.bytes_, convolution.result_bytes = joined, bytes_, layer.activations * size
                numbers[name] = inputs[0]
                return inputs[0]
        numbers[name] = number = len(graph.nodes)
        graph.nodes.append(Node(index, lowering, inputs, 0, bytes_, layer.activations * size))
        for node in inputs:
            if node != NETWORK_INPUT:
                graph.nodes[node].uses += 1
        return number

    for key in graph.keys:
        precisions = {index: BY_CODE[key[place]] for index, place in position.items()}
        for head, index in enumerate(network.outputs):
            number = node_of(index, key, precisions)
            graph.heads[head].setdefault(number, restricted(key, positions_by_layer[index]))
            conversion = lowerings.intern(conversion_between(precision_of(number), FP32))
            if conversion is not None:
                graph.finish[number] = conversion
    graph.split = find_split_concats(graph)
    for number, byte_count in count_sum_bytes(graph).items():
        graph.nodes[number].bytes_ += byte_count
    return graph


def _join_pool(convolution: Lowering, pool: Lowering) -> Lowering | None:
    """Join a convolution and the pooling of its result to one layer, where that is possible."""
    if convolution.rest or pool.rest or convolution.after is not None or pool.after is not None:
        return None
    if any(pool.convert) or any(pool.slices):
        return None
    joined = None if convolution.main is None or pool.main is None else convolution.main.joined(pool.main)
    return None if joined is None else replace(convolution, main=joined)


def run_stem(
    graph: SharedGraph,
    image: Tensor,
    prepared: Prepared,
    threads: int = 1,
    cached: Mapping[int, Tensor] | None = None,
    additional: Sequence[int] = (),
) -> list[Tensor]:
    """Return the tensors of the boundary for a group of images, in its order, then those of the nodes `additional`.

    cached: results of nodes of the stem for these images, which are not computed again. additional: nodes that run.
    Raises: LayerFailure, of all configurations.
    """
    results: Results = {NETWORK_INPUT: image, **(cached or {})}
    steps, returned = graph.stem_steps(cached or ()), (*graph.boundary, *additional)
    pending_uses = Counter(i for number in steps for i in graph.nodes[number].inputs)
    pending_uses.update(returned)
    for number in steps:
        results[number] = _run_node(graph, number, results, pending_uses, prepared, threads)
    # Conversions were made for consumers inside the stem; those outside have their own, for larger groups.
    return [replace(_tensor(results[number]), converted={}) for number in returned]


def slice_images(tensor: Tensor, start: int, end: int) -> Tensor:
    """Return a tensor of the images at these positions of a larger group."""
    code_map = None if tensor.code_map is None else tensor.code_map.images(start, end)
    ranges = None if tensor.ranges is None else tensor.ranges.images(start, end)
    return Tensor(tensor.storage.images(start, end), tensor.precision, code_map, ranges)


def join_tensors(groups: Sequence[Tensor]) -> Tensor:
    """Return the tensors of consecutive groups of images as one."""
    if len(groups) == 1:
        return groups[0]
    first = groups[0]
    device = first.storage.device
    maps = [group.code_map for group in groups if group.code_map is not None]
    code_map = CodeMap.joined(maps) if maps else None
    ranges = None if first.ranges is None else device.join([group.ranges for group in groups if group.ranges is not None])
    return Tensor(device.join([group.storage for group in groups]), first.precision, code_map, ranges)


def run_graph(
    graph: SharedGraph,
    stem: Sequence[Tensor],
    prepared: Prepared,
    on_head: OnHead,
    threads: int = 1,
    image: Tensor | None = None,
    compute: RunLowering = run_lowering,
    failures: dict[int, LayerFailure] | None = None,
) -> None:
    """Compute all nodes after the stem for a group of images; tensors go as soon as nothing needs them any more.

    stem: of `run_stem`, joined. image: fp32, (n, h, w, c), where a layer after the stem reads it. on_head: gets the
    number of the output, its name and its fp32 tensor, once per distinct output. compute: what gives a layer's result.
    failures: nodes that failed on earlier images, which are left out, as is all that needs them; gets those that fail now.
    None: the first failure is raised, as LayerFailure.
    """
    failure_by_node = {} if failures is None else failures
    head_of = {node: (head, name) for head, names in enumerate(graph.heads) for node, name in names.items()}
    results: Results = dict(zip(graph.boundary, stem, strict=True))
    if image is not None:
        results[NETWORK_INPUT] = image
    pending_uses = Counter(i for number, node in enumerate(graph.nodes) if number not in graph.stem for i in node.inputs)
    for number, node in enumerate(graph.nodes):
        if number in graph.stem and number not in head_of:
            continue
        cause = failure_by_node.get(number) or next((failure_by_node[i] for i in node.inputs if i in failure_by_node), None)
        if cause is not None:
            failure_by_node[number] = cause
            if number not in graph.stem:
                _release(node, results, pending_uses)
            continue
        try:
            if number not in graph.stem:
                result = _run_node(graph, number, results, pending_uses, prepared, threads, compute)
                if node.uses:
                    results[number] = result
            else:
                result = results[number]
            if number in head_of:
                tensor = convert(_tensor(result), graph.finish.get(number), prepared, threads)
                if number in graph.unchecked and not np.isfinite(tensor.host()).all():
                    raise NonFiniteError("a value is NaN or infinite")
                on_head(*head_of[number], tensor)
        except LayerFailure as failure:
            failure_by_node[number] = failure
        except (NonFiniteError, PrecisionError) as error:
            failure_by_node[number] = LayerFailure.of(graph.network, node.layer, error)
        if failures is None and number in failure_by_node:
            raise failure_by_node[number]


def _run_node(
    graph: SharedGraph,
    number: int,
    results: Results,
    pending_uses: Counter[int],
    prepared: Prepared,
    threads: int,
    compute: RunLowering = run_lowering,
) -> Tensor | SplitConcat:
    """Compute a node's result. pending_uses: how often each tensor is still needed. Raises: LayerFailure."""
    node = graph.nodes[number]
    inputs = [results[i] for i in node.inputs]
    try:
        return _compute(graph, number, inputs, prepared, threads, compute)
    except (KernelError, PrecisionError) as error:
        raise named_error(graph.network, node.layer, error) from None
    finally:
        _release(node, results, pending_uses)


def _release(node: Node, results: Results, pending_uses: Counter[int]) -> None:
    """Drop what a node needed for the last time, but for the image, which belongs to the caller."""
    for source in {*node.inputs} - {NETWORK_INPUT}:
        pending_uses[source] -= node.inputs.count(source)
        if pending_uses[source] == 0:
            results.pop(source, None)


def _compute(
    graph: SharedGraph,
    number: int,
    inputs: Sequence[Tensor | SplitConcat],
    prepared: Prepared,
    threads: int,
    compute: RunLowering,
) -> Tensor | SplitConcat:
    lowering = graph.nodes[number].lowering
    if len(inputs) == 1 and isinstance(inputs[0], SplitConcat):
        return run_split(lowering, inputs[0], prepared, threads)
    tensors = [x.concatenate(prepared, threads) if isinstance(x, SplitConcat) else x for x in inputs]
    if number in graph.split:
        return SplitConcat(lowering, (tensors[0], tensors[1]), graph.split[number])
    return compute(lowering, tensors, prepared, threads)


def _tensor(x: Tensor | SplitConcat) -> Tensor:
    assert isinstance(x, Tensor)
    return x
