# SPDX-License-Identifier: MIT
"""Observation of the tensors of an fp32 forward pass, for calibration and channel means."""

from __future__ import annotations

from typing import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import FloatArray
from mpnet.engine.assign import PrecisionPlan, assign
from mpnet.engine.lowering import range_owner
from mpnet.engine.plan import Step, build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.engine.tensor import Tensor
from mpnet.model.layers import ConnectedSpec, ConvolutionSpec, YoloSpec
from mpnet.model.network import NETWORK_INPUT, NetworkSpec
from mpnet.model.precision import FP32
from mpnet.quantization.bias_correction import ChannelMeans
from mpnet.quantization.cell_weights import cell_weights
from mpnet.quantization.equalise import activation_factors, depthwise_pairs
from mpnet.quantization.learnt_rounding import InputProducts

TensorObserver = Callable[[int, FloatArray], None]
"""Called with a tensor's index (the layer whose result it is, NETWORK_INPUT for the image) and its values (n, h, w, c)."""


def fp32_plan(network: NetworkSpec) -> PrecisionPlan:
    """Return every layer in fp32, whatever the cfg says."""
    keyed = [
        layer.index
        for layer in network.layers
        if layer.has_weights or (layer.declared is not None and layer.declared.precision is not None)
    ]
    return assign(network, overrides=dict.fromkeys(keyed, FP32))


def observe_tensors(
    prepared: Prepared, batches: Iterable[NDArray[np.float32]], observers: Iterable[TensorObserver], threads: int = 1
) -> int:
    """Run every batch (n, height, width, channels) in fp32 and show each tensor once; the number of images seen.

    Tensors that a layer only passes on (dropout, a route of one layer) are shown as the layer's that made them.
    Raises: DataError for batches that do not fit, EngineError naming the layer for values that are not finite.
    """
    network = prepared.network
    watching = list(observers)
    plan = build_plan(network, fp32_plan(network))
    session = Session(prepared, plan, threads)

    def show(_: int, step: Step, inputs: Sequence[Tensor], tensor: Tensor) -> None:
        # A layer may take several steps; the last one's tensor is its result.
        if not step.operation.is_head and step.output == plan.layer_slots[step.layer]:
            for observer in watching:
                observer(step.layer, tensor.floats())

    images = 0
    for batch in batches:
        for observer in watching:
            observer(NETWORK_INPUT, batch)
        session.observe(batch, show)
        images += len(batch)
    return images


def channel_factors(
    prepared: Prepared, batches: Iterable[NDArray[np.float32]], threads: int = 1
) -> dict[int, NDArray[np.float32]]:
    """Return the divisors of output channels for equalisation by activations.

    They stand by index of the layer that writes them; layers of which nothing would change are left out. prepared: not
    equalised. Raises: as `observe_tensors`.
    """
    network = prepared.network
    tensors_read = {
        pair.first: {range_owner(network, network.layers[reader].inputs[0]) for reader in pair.seconds}
        for pair in depthwise_pairs(network)
    }
    watched = set().union(*tensors_read.values())
    largest: dict[int, NDArray[np.float64]] = {}

    def measure(tensor: int, data: FloatArray) -> None:
        if tensor in watched:
            magnitudes = np.abs(data).max(axis=(0, 1, 2)).astype(np.float64)
            largest[tensor] = np.maximum(largest.get(tensor, 0.0), magnitudes)

    observe_tensors(prepared, batches, [measure], threads)
    factors = {
        first: activation_factors(np.maximum.reduce([largest[tensor] for tensor in sorted(tensors)]))
        for first, tensors in tensors_read.items()
    }
    return {first: values for first, values in factors.items() if (values != 1).any()}


def channel_means(
    prepared: Prepared, batches: Iterable[NDArray[np.float32]], threads: int = 1, *, weighed: bool = False
) -> dict[int, NDArray[np.float64]]:
    """Return the mean of each input channel of every convolution over all images, by layer index: for bias correction.

    weighed: cells of heads count as `cell_weights` says, else all alike. Raises: DataError when there is no image.
    """
    network = prepared.network
    meters = {layer.index: ChannelMeans() for layer in network.convolutions}

    def observe(layer: ConvolutionSpec, data: FloatArray, weights: NDArray[np.float64] | None) -> None:
        flat = isinstance(layer, ConnectedSpec)
        meters[layer.index].observe(data.reshape(len(data), -1) if flat else data, weights)

    observe_tensors(prepared, batches, [_reading(network, network.convolutions, observe, weighed)], threads)
    return {layer: meter.result() for layer, meter in meters.items()}


def input_products(
    prepared: Prepared, batches: Callable[[], Iterator[NDArray[np.float32]]], layers: Sequence[int], threads: int = 1
) -> dict[int, tuple[NDArray[np.float64], int]]:
    """Sum the covariance of what the filters of these convolutions read, for learnt rounding.

    Return it and the number of positions by layer index.

    Cells of heads count as `cell_weights` says.
    batches: a pass over the images; there are two, the first for the largest values. Raises: DataError without images.
    """
    network = prepared.network
    selected = [layer for layer in network.convolutions if layer.index in set(layers)]
    largest = dict.fromkeys((range_owner(network, layer.inputs[0]) for layer in selected), 0.0)

    def measure(tensor: int, data: FloatArray) -> None:
        if tensor in largest:
            largest[tensor] = max(largest[tensor], float(np.abs(data).max()))

    observe_tensors(prepared, batches(), [measure], threads)
    products = {
        layer.index: InputProducts(
            layer.kernel_input[2],
            largest[range_owner(network, layer.inputs[0])],
            size=layer.size,
            stride=layer.stride,
            padding=layer.padding,
            dilation=layer.dilation,
            groups=layer.groups,
        )
        for layer in selected
    }

    def observe(layer: ConvolutionSpec, data: FloatArray, weights: NDArray[np.float64] | None) -> None:
        products[layer.index].observe(data.reshape(len(data), *layer.kernel_input), weights)

    observe_tensors(prepared, batches(), [_reading(network, selected, observe, weighed=True)], threads)
    return {index: (layer_products.covariance(), layer_products.positions) for index, layer_products in products.items()}


def _reading(
    network: NetworkSpec,
    layers: Sequence[ConvolutionSpec],
    observe: Callable[[ConvolutionSpec, FloatArray, NDArray[np.float64] | None], None],
    weighed: bool,
) -> TensorObserver:
    """Hand over what each layer reads, and the weights of its cells where a head decodes what it makes of them."""
    readers: dict[int, list[ConvolutionSpec]] = {}
    for layer in layers:
        readers.setdefault(range_owner(network, layer.inputs[0]), []).append(layer)
    heads = head_convolutions(network) if weighed else {}
    waiting: dict[int, FloatArray] = {}

    def show(tensor: int, data: FloatArray) -> None:
        if tensor in waiting:
            layer, head = heads[tensor]
            assert head.objectness is not None
            observe(layer, waiting.pop(tensor), cell_weights(data, len(head.head_anchors), head.objectness, head.new_coords))
        for layer in readers.get(tensor, ()):
            if layer.index in heads:
                waiting[layer.index] = np.array(data)  # its memory may be another tensor's when its weights are known
            else:
                observe(layer, data, None)

    return show


def head_convolutions(network: NetworkSpec) -> dict[int, tuple[ConvolutionSpec, YoloSpec]]:
    """Return the convolutions whose every cell a head decodes by an objectness, by index."""
    head_of = {range_owner(network, head.inputs[0]): head for head in network.yolos if head.objectness is not None}
    return {
        layer.index: (layer, head_of[layer.index])
        for layer in network.convolutions
        if layer.index in head_of and not isinstance(layer, ConnectedSpec)
    }
