"""Costs of very many configurations: what engine.cost counts on a plan, without making the plan.

A tenth of a millisecond instead of several: a sweep of 177,147 configurations would spend minutes on plans alone. A
test holds both together on every configuration of several networks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import Mapping

import numpy as np

from mpnet.engine.fuse import pooled
from mpnet.engine.lowering import layer_precision, lower_layer, range_owner
from mpnet.engine.memory import ALIGNMENT
from mpnet.engine.operations import Cast, Convolve, Dequantize, MaxPool, Operation
from mpnet.engine.options import EngineOptions
from mpnet.engine.prepare import weight_bytes
from mpnet.spec.network import PICTURE, ConvolutionSpec, MaxpoolSpec, NetworkSpec, YoloSpec
from mpnet.spec.precision import BY_CODE, FP32, Precision


@dataclass(frozen=True)
class _Rule:
    """One layer at one precision with its inputs stored in one way.

    convert, after: numbers of the conversions (equal ones have equal numbers) and bytes of a value that they give.
    slices: channels of each slice, 0 for none. main: whether there is an operation; main_bytes: of one of its values.
    """

    convert: tuple[tuple[int, int], ...]
    slices: tuple[int, ...]
    main: bool
    main_bytes: int
    after: tuple[int, int]
    result: Precision
    weight_bytes: int
    bit_operations: int
    int8_macs: int


_NONE = (-1, 0)


class CostModel:
    """Costs of the configurations of one network under one set of options."""

    def __init__(
        self, network: NetworkSpec, options: EngineOptions, own: Mapping[int, Precision] | None = None
    ) -> None:
        self._network, self._options, self._own = network, options, dict(own or {})
        self._position = {layer.index: number for number, layer in enumerate(network.convolutions)}
        self._pixels = [layer.out_shape[0] * layer.out_shape[1] for layer in network.layers]
        self._rules: dict[tuple[int, Precision, tuple[Precision, ...]], _Rule] = {}
        self._numbers: dict[Operation, int] = {}
        self._fused_pools = _fused_pools(network)

    def costs(self, key: str) -> dict[str, float]:
        """weight_bytes, peak_activation_bytes, bit_operations, int8_macs of a configuration (codes only)."""
        height, width, channels = self._network.in_shape
        # Per slot: values, bytes of a value, first and last step.
        values, sizes, first, last = [height * width * channels], [4], [-1], [-1]
        shared: dict[tuple[int, int], int] = {}
        results: list[int] = []
        stored: list[Precision] = []
        outputs: list[int] = []
        steps = weights = bits = int8_macs = 0

        def add(count: int, size: int) -> int:
            nonlocal steps
            values.append(count)
            sizes.append(size)
            first.append(steps)
            last.append(steps)
            steps += 1
            return len(values) - 1

        def convert(slot: int, conversion: tuple[int, int]) -> int:
            number, size = conversion
            if number < 0:
                return slot
            found = shared.get((slot, number))
            if found is None:
                last[slot] = steps
                found = shared[slot, number] = add(values[slot], size)
            return found

        for layer in self._network.layers:
            inputs = [0 if i == PICTURE else results[i] for i in layer.inputs]
            sources = tuple(FP32 if i == PICTURE else stored[i] for i in layer.inputs)
            rule = self._rule(layer.index, key, sources)
            inputs = [convert(slot, op) for slot, op in zip(inputs, rule.convert, strict=True)]
            for place, width in enumerate(rule.slices):
                if width:
                    source = inputs[place]
                    last[source] = steps
                    pixels = values[source] // self._network.shape_of(layer.inputs[place])[2]
                    inputs[place] = add(pixels * width, sizes[source])
            slot = inputs[0]
            if isinstance(layer, YoloSpec):
                last[slot] = steps
                steps += 1
                outputs.append(slot)
            elif layer.index in self._fused_pools and rule.convert[0] == _NONE:
                values[slot] = layer.activations
            elif rule.main:
                for source in inputs:
                    last[source] = steps
                slot = add(layer.activations, rule.main_bytes)
            results.append(convert(slot, rule.after))
            stored.append(rule.result)
            weights += rule.weight_bytes
            bits += rule.bit_operations
            int8_macs += rule.int8_macs
        for slot in outputs:
            last[slot] = steps
        change = [0] * (steps + 2)
        for count, size, begin, end in zip(values, sizes, first, last, strict=True):
            rounded = (count * size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
            change[max(begin, 0)] += rounded
            change[end + 1] -= rounded
        peak = max(list(accumulate(change))[:steps])
        return {"weight_bytes": float(weights), "peak_activation_bytes": float(peak), "bit_operations": float(bits),
                "int8_macs": float(int8_macs)}

    def _rule(self, index: int, key: str, sources: tuple[Precision, ...]) -> _Rule:
        layer = self._network.layers[index]
        wanted = BY_CODE[key[self._position[index]]] if index in self._position else self._own.get(index)
        precision = layer_precision(layer, wanted, sources)
        name = (index, precision, sources)
        if name not in self._rules:
            self._rules[name] = self._lower(index, precision, sources)
        return self._rules[name]

    def _lower(self, index: int, precision: Precision, sources: tuple[Precision, ...]) -> _Rule:
        layer = self._network.layers[index]
        low = lower_layer(self._network, index, precision, sources, self._options)
        main_storage = FP32 if low.after is not None else low.result
        weights = bits = int8_macs = 0
        if isinstance(layer, ConvolutionSpec):
            assert isinstance(low.main, Convolve)
            weights = weight_bytes(layer, low.main)
            bits = layer.macs * precision.weight_bits * 8 * np.dtype(precision.storage).itemsize
            int8_macs = layer.macs if precision.carries_scale else 0
        return _Rule(
            tuple(self._conversion(op) for op in low.convert),
            tuple(0 if part is None else part.stop - part.start for part in low.slices),
            low.main is not None, np.dtype(main_storage.storage).itemsize, self._conversion(low.after), low.result,
            weights, bits, int8_macs,
        )

    def _conversion(self, operation: Operation | None) -> tuple[int, int]:
        if operation is None:
            return _NONE
        number = self._numbers.setdefault(operation, len(self._numbers))
        size = np.dtype(operation.target.storage).itemsize if isinstance(operation, Dequantize | Cast) else 1
        return number, size


def _fused_pools(network: NetworkSpec) -> frozenset[int]:
    """Poolings that run inside the convolution before them, unless a conversion comes between."""
    # Layers that only pass a tensor on read nothing.
    readers = Counter(
        range_owner(network, source) for layer in network.layers if range_owner(network, layer.index) == layer.index
        for source in layer.inputs
    )
    return frozenset(
        layer.index for layer in network.layers if isinstance(layer, MaxpoolSpec)
        and readers[owner := range_owner(network, layer.inputs[0])] == 1
        and owner != PICTURE and isinstance(network.layers[owner], ConvolutionSpec)
        and pooled(Convolve(), MaxPool(layer.size, layer.stride, layer.padding)) is not None
    )
