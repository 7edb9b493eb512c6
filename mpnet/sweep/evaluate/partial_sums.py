# SPDX-License-Identifier: MIT
"""Convolutions of a concatenation one part of which many configurations share: the sums over its channels are made once.

Sums of whole numbers do not depend on their order, so those over some input channels can be continued by those over the others:
the same integers, de-scaled by the same kernel. What has to agree is what codes mean. That depends on the range of both parts
together, which mostly is that of the shared one; images where it is not get sums of their own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.execute import convolve, on_device, run_calls, run_lowering
from mpnet.engine.lowering import Lowering
from mpnet.engine.operations import Concat, Context, Convolve, PreparedConvolution, Quantize
from mpnet.engine.placement import is_supported
from mpnet.engine.prepare import Prepared
from mpnet.engine.tensor import ChannelSums, CodeMap, Tensor
from mpnet.kernels.device import Storage
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import FP32
from mpnet.model.quantization import GROUP
from mpnet.quantization import native as activations
from mpnet.sweep.evaluate.graph import SharedGraph


@dataclass(eq=False)
class SplitConcat:
    """The two inputs of a concatenation, kept apart instead of being copied side by side.

    shared: which of the two, 0 or 1, other nodes read as well. codes: of the other one, by the quantisation that makes them.
    _concatenated: both side by side, once that was asked for.
    """

    lowering: Lowering
    inputs: tuple[Tensor, Tensor]
    shared: int
    codes: dict[Quantize, Tensor] = field(default_factory=dict)
    _concatenated: Tensor | None = None

    def channels(self, number: int) -> slice:
        """Return which channels of the concatenation are those of input `number`."""
        first, second = (tensor.shape[2] for tensor in self.inputs)
        return slice(0, first) if number == 0 else slice(first, first + second)

    def concatenate(self, prepared: Prepared, threads: int) -> Tensor:
        """Return both inputs in one tensor, side by side along the channels; made once."""
        if self._concatenated is None:
            self._concatenated = run_lowering(self.lowering, self.inputs, prepared, threads)
        return self._concatenated


def find_split_concats(graph: SharedGraph) -> dict[int, int]:
    """Return the numbers of concatenations that are not written, and which of their two inputs others read as well."""
    readers: dict[int, list[int]] = {}
    for number, node in enumerate(graph.nodes):
        for source in node.inputs:
            readers.setdefault(source, []).append(number)
    heads = {number for names in graph.heads for number in names}
    split = {}
    for number, node in enumerate(graph.nodes):
        reader_lowerings = [graph.nodes[reader].lowering for reader in readers.get(number, ())]
        if not reader_lowerings or number in heads or number in graph.stem or not _is_concatenation(node.lowering):
            continue
        first_channels = graph.network.shape_of(graph.network.layers[node.layer].inputs[0])[2]
        if any(can_sum_inputs(reader, graph.network, first_channels) for reader in reader_lowerings):
            uses = [sum(graph.nodes[reader].layer == node.layer for reader in readers[source]) for source in node.inputs]
            if max(uses) > 1:
                split[number] = int(uses[1] >= uses[0])
    return split


def count_sum_bytes(graph: SharedGraph) -> Counter[int]:
    """Return the bytes of the sums over shared parts for one image, by number of the node whose tensor they are kept with."""
    sums = {
        (graph.nodes[source].inputs[graph.split[source]], node.lowering)
        for node in graph.nodes
        for source in node.inputs
        if source in graph.split and isinstance(node.lowering.convert[0], Quantize)
    }
    sizes: Counter[int] = Counter()
    for number, lowering in sums:
        sizes[number] += lowering.layer.activations * np.dtype(np.int32).itemsize
    return sizes


def _is_concatenation(lowering: Lowering) -> bool:
    does_nothing_else = not any(lowering.convert) and not any(lowering.slices) and not lowering.rest and lowering.after is None
    return isinstance(lowering.main, Concat) and len(lowering.convert) == 2 and does_nothing_else


def can_sum_inputs(lowering: Lowering, network: NetworkSpec, first_channels: int) -> bool:
    """Return whether this is a convolution of bytes and nothing else, whose weights can be cut behind the first channels."""
    main, conversion = lowering.main, lowering.convert[0]
    if not isinstance(main, Convolve) or not isinstance(conversion, Quantize) or conversion.rules is None:
        return False
    if not main.precision.multiplies_bytes:
        return False
    if main.pool or main.quantize or lowering.rest or lowering.after or any(lowering.slices) or lowering.result is not FP32:
        return False
    layer = main.layer_of(network)
    reads_all_channels = layer.groups == 1 and layer.kernel_input == network.shape_of(layer.inputs[0])
    return reads_all_channels and (
        first_channels % GROUP == 0 or main.weights is None or not main.weights.in_groups(layer.kernel_input[2])
    )


def run_split(lowering: Lowering, x: SplitConcat, prepared: Prepared, threads: int) -> Tensor:
    """Run a layer that reads what lies apart. Raises: KernelError, PrecisionError."""
    operation, quantize = lowering.main, lowering.convert[0]
    if not can_sum_inputs(lowering, prepared.network, x.channels(0).stop):
        return run_lowering(lowering, [x.concatenate(prepared, threads)], prepared, threads)
    assert isinstance(operation, Convolve)
    assert isinstance(quantize, Quantize)
    if not (is_supported(quantize, FP32, prepared.kernels) and is_supported(operation, quantize.target, prepared.kernels)):
        return run_lowering(lowering, [x.concatenate(prepared, threads)], prepared, threads)
    own_convolution, shared_convolution = (
        prepared.input_slice(operation, x.channels(number)) for number in (1 - x.shared, x.shared)
    )
    if not (prepared.kernels.takes_sums(own_convolution.packed) and prepared.kernels.takes_sums(shared_convolution.packed)):
        return run_lowering(lowering, [x.concatenate(prepared, threads)], prepared, threads)
    context = Context.of(prepared, threads)
    parts = [on_device(tensor, prepared) for tensor in x.inputs]
    codes = x.codes.get(quantize)
    if codes is None:
        # Measured on both, as on the whole.
        ranges = np.stack([_ranges(tensor, context).host() for tensor in parts])
        joint_range = np.stack([ranges[..., 0].min(axis=0), ranges[..., 1].max(axis=0)], axis=1)
        codes = x.codes[quantize] = _quantize(parts[1 - x.shared], quantize, _code_map(quantize, joint_range, context), context)
    assert codes.code_map is not None
    sums = _sums_for(parts[x.shared], codes.code_map, operation, quantize, shared_convolution, context)
    result = Tensor(context.allocate((codes.images, *lowering.shapes[0]), FP32.stored.dtype))
    result.ranges = context.allocate((codes.images, 2))
    convolve(
        operation,
        own_convolution,
        codes.storage,
        result.storage,
        codes.code_map.scales,
        prepared,
        threads,
        ranges=result.ranges,
        sums=sums,
    )
    return result


def _sums_for(
    x: Tensor, code_map: CodeMap, operation: Convolve, quantize: Quantize, convolution: PreparedConvolution, context: Context
) -> Storage:
    """Return the sums over a shared part, for codes that mean this."""
    cached = x.channel_sums.get((context.prepared, operation))
    if cached is None:
        part_map = _code_map(quantize, _ranges(x, context).floats(), context)
        cached = x.channel_sums[context.prepared, operation] = ChannelSums(
            _sums(x, part_map, operation, quantize, convolution, context), part_map
        )
    differing = np.flatnonzero(cached.code_map.params.host() != code_map.params.host())
    if not len(differing):
        return cached.sums
    device = context.device
    images = Tensor(device.take(x.storage, differing))
    sums = _sums(images, code_map.of_images(differing), operation, quantize, convolution, context)
    return device.replaced(cached.sums, differing, sums)


def _sums(
    x: Tensor, code_map: CodeMap, operation: Convolve, quantize: Quantize, convolution: PreparedConvolution, context: Context
) -> Storage:
    shape = convolution.packed.shape
    sums = context.allocate((x.images, shape.out_h, shape.out_w, shape.out_channels), np.dtype(np.int32))
    codes = _quantize(x, quantize, code_map, context)
    convolve(operation, convolution, codes.storage, sums, code_map.scales, context.prepared, context.threads)
    return sums


def _ranges(x: Tensor, context: Context) -> Storage:
    """Return (n, 2), measured once."""
    if x.ranges is None:
        ranges = context.allocate((x.images, 2))
        run_calls(Quantize(), [context.binder.value_range(x.storage, ranges)], context)
        x.ranges = ranges
    return x.ranges


def _code_map(quantize: Quantize, ranges: NDArray[np.float32], context: Context) -> CodeMap:
    """Return what codes of tensors with these ranges (n, 2) mean."""
    if quantize.range is not None:
        return quantize.fixed_map(len(ranges), context.device)
    return CodeMap.from_rows(activations.ranges_to_params(ranges, quantize.scheme), context.device)


def _quantize(x: Tensor, quantize: Quantize, code_map: CodeMap, context: Context) -> Tensor:
    codes = Tensor(context.allocate(x.storage.shape, quantize.target.stored.dtype), quantize.target, code_map)
    scheme = quantize.scheme
    assert scheme.rounding is not None
    call = context.binder.quantize(
        x.storage, codes.storage, code_map.scales, rounding=scheme.rounding, low=scheme.low, high=scheme.high
    )
    run_calls(quantize, [call], context)
    return codes
