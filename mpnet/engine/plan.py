"""Steps over slots: a forward pass as data, every conversion visible, verified before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from mpnet.engine.assign import PrecisionPlan
from mpnet.engine.lowering import lower_layer
from mpnet.engine.operations import (
    Add,
    AvgPool,
    Cast,
    Concat,
    Convolve,
    ConvolvePool,
    ConvolveQuantize,
    Dequantize,
    MaxPool,
    Operation,
    Quantize,
    Slice,
    Upsample,
    Yolo,
    conversion_between,
    convolution_of,
)
from mpnet.engine.options import DEFAULT_OPTIONS, EngineOptions
from mpnet.errors import EngineError
from mpnet.spec.network import PICTURE, ConvolutionSpec, NetworkSpec, Shape
from mpnet.spec.precision import FP16, FP32, INT8, Precision


@dataclass(frozen=True)
class Slot:
    """One tensor of the plan: shape (h, w, c) for one image, storage, and the layer whose values it holds.

    first, last: the steps that write it and read it last; -1 and len(steps) for the picture and for outputs.
    """

    shape: Shape
    precision: Precision
    layer: int
    first: int
    last: int

    @property
    def values(self) -> int:
        """Values for one image."""
        return self.shape[0] * self.shape[1] * self.shape[2]


@dataclass(frozen=True)
class Step:
    """One operation on slots, on behalf of `layer`. takes, gives: the storage that it declares."""

    operation: Operation
    layer: int
    inputs: tuple[int, ...]
    output: int
    takes: Precision
    gives: Precision


@dataclass(frozen=True)
class Plan:
    """A verified forward pass of one network at one assignment of precisions.

    slots:       slot 0 is the picture, NHWC fp32.
    outputs:     slots of the tensors that enter the heads (without heads: of the last layer's), all fp32.
    layer_slots: for each layer the slot of its result.
    """

    network: NetworkSpec
    precision: PrecisionPlan
    options: EngineOptions
    steps: tuple[Step, ...]
    slots: tuple[Slot, ...]
    outputs: tuple[int, ...]
    layer_slots: tuple[int, ...]

    @cached_property
    def conversions(self) -> tuple[tuple[Step, ...], ...]:
        """For each layer the conversion steps that were inserted on its behalf."""
        found: list[list[Step]] = [[] for _ in self.network.layers]
        for step in self.steps:
            # The conversion of a result without heads belongs to the last layer.
            if step.operation.is_conversion:
                found[step.layer].append(step)
        return tuple(tuple(steps) for steps in found)

    @cached_property
    def unchecked_outputs(self) -> tuple[tuple[int, int], ...]:
        """(slot, step that writes it, 0 for the picture) of outputs that no convolution has checked to be finite."""
        writers = {step.output: number for number, step in enumerate(self.steps) if step.output not in step.inputs}
        found = []
        for slot in dict.fromkeys(self.outputs):
            number = writers.get(slot, 0)
            checked = slot in writers and isinstance(self.steps[number].operation, Convolve | Dequantize)
            if not checked:
                found.append((slot, number))
        return tuple(found)

    def text(self) -> str:
        """One line per step, for people and for tests."""
        lines = []
        for number, step in enumerate(self.steps):
            sources = " ".join(f"s{slot}" for slot in step.inputs)
            change = f"{step.takes}" if step.takes == step.gives else f"{step.takes} -> {step.gives}"
            height, width, channels = self.slots[step.output].shape
            name = self.network.layers[step.layer].name
            detail = f" ({step.operation.detail})" if step.operation.detail else ""
            lines.append(
                f"{number:3d} {step.operation.name}{detail} for {name}: {sources} -> s{step.output}, "
                f"{width}x{height}x{channels}, {change}"
            )
        return "\n".join(lines)


class _Builder:
    """Steps and slots under construction."""

    def __init__(self, network: NetworkSpec) -> None:
        self.network = network
        self.steps: list[Step] = []
        self.shapes: list[Shape] = [network.in_shape]
        self.precisions: list[Precision] = [FP32]
        self.layers: list[int] = [PICTURE]
        self.writers: list[int] = [-1]
        self.shared: dict[tuple[int, Operation], int] = {}

    def add(self, operation: Operation, layer: int, inputs: tuple[int, ...], shape: Shape, gives: Precision) -> int:
        """Append a step that writes a slot of its own."""
        slot = len(self.shapes)
        takes = self.precisions[inputs[0]]
        self.writers.append(len(self.steps))
        self.steps.append(Step(operation, layer, inputs, slot, takes, gives))
        self.shapes.append(shape)
        self.precisions.append(gives)
        self.layers.append(self.layers[inputs[0]] if operation.is_conversion else layer)
        return slot

    def convert(self, operation: Operation | None, layer: int, slot: int) -> int:
        """The slot converted; two consumers that want the same conversion of one slot share its step."""
        if operation is None:
            return slot
        known = self.shared.get((slot, operation))
        if known is None:
            gives = operation.target if isinstance(operation, Dequantize | Cast) else INT8
            known = self.add(operation, layer, (slot,), self.shapes[slot], gives)
            self.shared[slot, operation] = known
        return known


def build_plan(
    network: NetworkSpec, precision_plan: PrecisionPlan, options: EngineOptions = DEFAULT_OPTIONS
) -> Plan:
    """The steps of one forward pass, verified.

    Raises: PrecisionError for calibrated ranges that are missing, EngineError when verification fails.
    """
    builder = _Builder(network)
    results: list[int] = []
    outputs: list[int] = []
    for layer in network.layers:
        slots = [0 if index == PICTURE else results[index] for index in layer.inputs]
        stored = [builder.precisions[slot] for slot in slots]
        low = lower_layer(network, layer.index, precision_plan[layer.index], stored, options)
        slots = [builder.convert(op, layer.index, slot) for op, slot in zip(low.convert, slots, strict=True)]
        for position, part in enumerate(low.slices):
            if part is not None:
                source = slots[position]
                height, width, _ = builder.shapes[source]
                shape = (height, width, part.stop - part.start)
                slots[position] = builder.add(part, layer.index, (source,), shape, builder.precisions[source])
        if isinstance(low.main, Yolo):
            # A head reads its tensor and makes none: decoding works on what enters the yolo layer.
            outputs.append(slots[0])
            builder.steps.append(Step(low.main, layer.index, (slots[0],), slots[0], FP32, FP32))
            results.append(slots[0])
            continue
        slot = slots[0]
        if low.main is not None:
            gives = FP32 if low.after is not None else low.result
            slot = builder.add(low.main, layer.index, tuple(slots), layer.out_shape, gives)
        results.append(builder.convert(low.after, layer.index, slot))
    if not outputs:
        slot = results[-1]
        convert = conversion_between(builder.precisions[slot], FP32, Quantize())
        outputs.append(builder.convert(convert, len(network.layers) - 1, slot))
    plan = Plan(
        network, precision_plan, options, tuple(builder.steps), _slots(builder, outputs), tuple(outputs), tuple(results)
    )
    verify_plan(plan)
    return plan


def _slots(builder: _Builder, outputs: list[int]) -> tuple[Slot, ...]:
    last = list(builder.writers)
    for number, step in enumerate(builder.steps):
        for slot in step.inputs:
            last[slot] = max(last[slot], number)
    for slot in outputs:
        last[slot] = len(builder.steps)
    return tuple(
        Slot(*row) for row in
        zip(builder.shapes, builder.precisions, builder.layers, builder.writers, last, strict=True)
    )


_KEEPS_STORAGE = (MaxPool, AvgPool, Upsample, Slice, Concat, Add, Yolo)


def verify_plan(plan: Plan) -> None:
    """Check that no step gets a precision, a shape or a tensor that it does not declare.

    Raises: EngineError that names the step and the layer.
    """
    written = {0}
    for number, step in enumerate(plan.steps):
        problem = _step_problem(plan, step, written)
        if problem:
            layer = plan.network.layers[step.layer]
            raise EngineError(f"step {number} ({step.operation.name}) of layer {layer.index} ({layer.name}): {problem}")
        written.add(step.output)
    for slot in plan.outputs:
        if slot not in written or plan.slots[slot].precision != FP32:
            raise EngineError(f"output slot {slot} is not written as fp32")


def _step_problem(plan: Plan, step: Step, written: set[int]) -> str:
    operation, out = step.operation, plan.slots[step.output]
    for slot in step.inputs:
        if slot not in written:
            return f"reads slot {slot} before it is written"
        if plan.slots[slot].precision != step.takes:
            return f"declares {step.takes} but slot {slot} holds {plan.slots[slot].precision}"
    if out.precision != step.gives:
        return f"declares to give {step.gives} but slot {step.output} holds {out.precision}"
    if isinstance(operation, Yolo):
        return "" if step.takes == FP32 else f"a head takes fp32, not {step.takes}"
    if step.output in written:
        return f"writes slot {step.output} a second time"
    if not _fits(operation, step.takes, step.gives):
        return f"cannot turn {step.takes} into {step.gives}"
    expected = _result_shape(plan, step)
    return "" if out.shape == expected else f"gives the shape {out.shape} where {expected} follows from its inputs"


def _fits(operation: Operation, takes: Precision, gives: Precision) -> bool:
    """Whether the operation turns the one storage into the other."""
    if isinstance(operation, Quantize):
        return takes in (FP32, FP16) and gives == INT8
    if isinstance(operation, Dequantize):
        return takes == INT8 and gives == operation.target
    if isinstance(operation, Cast):
        return takes in (FP32, FP16) and gives == operation.target != takes
    if isinstance(operation, Convolve):
        return takes.base == operation.precision.base and gives == (FP32 if takes == INT8 else takes)
    if isinstance(operation, ConvolveQuantize):
        return takes.base == operation.convolve.precision.base and gives == INT8
    if isinstance(operation, ConvolvePool):
        return _fits(operation.convolve, takes, gives)
    if isinstance(operation, Add | AvgPool | Concat) and takes == INT8:
        return False
    return isinstance(operation, _KEEPS_STORAGE) and takes == gives


def _result_shape(plan: Plan, step: Step) -> Shape:
    operation, layer = step.operation, plan.network.layers[step.layer]
    height, width, channels = plan.slots[step.inputs[0]].shape
    if convolution_of(operation) is not None and isinstance(layer, ConvolutionSpec):
        reach = layer.dilation * (layer.size - 1) + 1
        height = (height + 2 * layer.padding - reach) // layer.stride + 1
        width = (width + 2 * layer.padding - reach) // layer.stride + 1
        channels = layer.filters
    pool = operation.pool if isinstance(operation, ConvolvePool) else operation
    if isinstance(pool, MaxPool):
        rest = pool.padding - pool.size
        return ((height + rest) // pool.stride + 1, (width + rest) // pool.stride + 1, channels)
    if isinstance(operation, AvgPool):
        return (1, 1, channels)
    if isinstance(operation, Upsample):
        return (height * operation.factor, width * operation.factor, channels)
    if isinstance(operation, Slice):
        return (height, width, operation.stop - operation.start)
    if isinstance(operation, Concat):
        return (height, width, sum(plan.slots[slot].shape[2] for slot in step.inputs))
    return (height, width, channels)
