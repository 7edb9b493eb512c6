# SPDX-License-Identifier: MIT
"""Steps over slots as plain lists: what plans are made of, fusion works on and costs are counted from.

Light, because a sweep counts the costs of every configuration: nothing here is verified or kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple, Sequence

from mpnet.engine.lowering import Lowering, Lowerings
from mpnet.engine.operations import Operation, conversion_between, conversion_steps
from mpnet.kernels.device import HOST
from mpnet.kernels.memory import ALIGNMENT
from mpnet.model.network import NETWORK_INPUT, Shape
from mpnet.model.precision import FP32, Precision


class Step(NamedTuple):
    """One operation on slots, on behalf of `layer`, with the storage that it declares for its inputs and its result."""

    operation: Operation
    layer: int
    inputs: tuple[int, ...]
    output: int
    input_precision: Precision
    output_precision: Precision


@dataclass(eq=False)
class Layout:
    """Slot 0 is the image.

    steps:      in the order of running.
    shapes, precisions, layers: by slot: of one image, its storage, the layer whose values it holds.
    outputs:    slots of the tensors that leave the network.
    results:    for each layer the slot of its result. lowerings: for each layer what it does.
    devices:    by slot: the name of the device where it lies; a layout begins on the CPU, `placement.place` moves it.
    """

    shapes: list[Shape]
    precisions: list[Precision]
    layers: list[int]
    steps: list[Step] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    lowerings: list[Lowering] = field(default_factory=list)
    devices: list[str] = field(default_factory=lambda: [HOST.name])

    def add(self, operation: Operation, layer: int, inputs: tuple[int, ...], shape: Shape, output_precision: Precision) -> int:
        """Append a step that writes a slot of its own."""
        owner = self.layers[inputs[0]] if operation.is_conversion else layer
        slot = self.add_slot(shape, output_precision, owner, self.devices[inputs[0]])
        self.steps.append(Step(operation, layer, inputs, slot, self.precisions[inputs[0]], output_precision))
        return slot

    def add_slot(self, shape: Shape, precision: Precision, layer: int, device: str) -> int:
        """Append a slot, which no step writes yet. device: the name of the one where it lies."""
        self.shapes.append(shape)
        self.precisions.append(precision)
        self.layers.append(layer)
        self.devices.append(device)
        return len(self.shapes) - 1

    def readers(self) -> list[int]:
        """Count by slot how often steps and outputs read it."""
        counts = [0] * len(self.shapes)
        for step in self.steps:
            for slot in step.inputs:
                counts[slot] += 1
        for slot in self.outputs:
            counts[slot] += 1
        return counts

    def lifetimes(self) -> tuple[list[int], list[int]]:
        """Return by slot the numbers of the steps that write it and read it last.

        They are -1 and one past the end for the image and for outputs; one past the end and -1 for a slot that nothing writes.
        """
        count = len(self.steps)
        first, last = [count] * len(self.shapes), [-1] * len(self.shapes)
        first[0] = -1
        for number, step in enumerate(self.steps):
            for slot in step.inputs:
                last[slot] = number
            if not step.operation.is_head:
                first[step.output] = last[step.output] = number
        for slot in self.outputs:
            last[slot] = count
        return first, last

    def peak_bytes(self) -> int:
        """Return the most bytes that live at one time, the image included."""
        sizes = [stored_bytes(shape, precision) for shape, precision in zip(self.shapes, self.precisions, strict=True)]
        return peak_bytes(sizes, *self.lifetimes(), len(self.steps))


def stored_bytes(shape: Shape, precision: Precision) -> int:
    """Return the bytes of a tensor (h, w, c), rounded up to whole cache lines."""
    height, width, channels = shape
    size = height * width * channels * precision.stored.item_bytes
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def peak_bytes(sizes: Sequence[int], first: Sequence[int], last: Sequence[int], count: int) -> int:
    """Return the largest sum of sizes that live at one of `count` steps; each lives from its first step to its last."""
    change = [0] * (count + 2)
    for size, begin, end in zip(sizes, first, last, strict=True):
        if begin <= end:
            change[max(begin, 0)] += size
            change[end + 1] -= size
    return max(accumulate(change))


def lay_out(lowerings: Lowerings, requested: Sequence[Precision | None]) -> Layout:
    """Lay out the steps of one forward pass, unfused.

    requested: each layer's precision, None where it follows its inputs.

    Raises: PrecisionError for calibrated ranges that are missing.
    """
    network = lowerings.network
    layout = Layout([network.in_shape], [FP32], [NETWORK_INPUT])
    shapes, precisions, results, add = layout.shapes, layout.precisions, layout.results, layout.add
    # By (slot, id): two consumers that want the same conversion of one slot share its step.
    shared: dict[tuple[int, int], int] = {}
    layout.lowerings = lowerings.lower_all(requested)
    for lowering in layout.lowerings:
        layer, index = lowering.layer, lowering.layer.index
        slots = [0 if i == NETWORK_INPUT else results[i] for i in layer.inputs]
        for position, conversion in enumerate(lowering.convert):
            if conversion is not None:
                for conversion_step in conversion_steps(precisions[slots[position]], conversion):
                    step = lowerings.intern(conversion_step) or conversion_step
                    slot, key = slots[position], (slots[position], id(step))
                    if key not in shared:
                        shared[key] = add(step, index, (slot,), shapes[slot], step.target)
                    slots[position] = shared[key]
        for position, slice_input in enumerate(lowering.slices):
            if slice_input is not None:
                slot = slots[position]
                shape = slice_input.result_shape(network, [shapes[slot]])
                slots[position] = add(slice_input, index, (slot,), shape, precisions[slot])
        slot, main = slots[0], lowering.main
        if main is not None and main.is_head:
            # A head reads its tensor and makes none: decoding works on what enters the yolo layer.
            layout.outputs.append(slot)
            layout.steps.append(Step(main, index, (slot,), slot, FP32, FP32))
        elif main is not None:
            operands = tuple(slots)
            for operation, shape in zip(lowering.operations, lowering.shapes, strict=True):
                output_precision = operation.output_precision(precisions[operands[0]])
                assert output_precision is not None  # as lowered
                slot = add(operation, index, operands, shape, output_precision)
                operands = (slot,)
            if lowering.after is not None:
                slot = add(lowering.after, index, (slot,), shapes[slot], lowering.result)
        results.append(slot)
    if not layout.outputs:
        output = network.outputs[0]
        slot = results[output]
        final = lowerings.intern(conversion_between(precisions[slot], FP32))
        if final is not None and (slot, id(final)) in shared:
            slot = shared[slot, id(final)]
        elif final is not None:
            slot = add(final, output, (slot,), shapes[slot], FP32)
        layout.outputs.append(slot)
    return layout
