# SPDX-License-Identifier: MIT
"""Steps over slots: a forward pass as data, every conversion visible, verified before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from mpnet.engine.assign import PrecisionPlan
from mpnet.engine.layout import Layout, Step, lay_out
from mpnet.engine.lowering import Lowering, Lowerings
from mpnet.engine.operations import Transfer
from mpnet.engine.options import DEFAULT_OPTIONS, EngineOptions
from mpnet.errors import EngineError
from mpnet.kernels.device import HOST
from mpnet.model.network import NetworkSpec, Shape
from mpnet.model.precision import FP32, Precision

__all__ = ["Plan", "Slot", "Step", "build_plan", "layout_of", "plan_of", "verify_plan"]


@dataclass(frozen=True)
class Slot:
    """One tensor of the plan: shape (h, w, c) for one image, storage, and the layer whose values it holds.

    first, last: the steps that write it and read it last; -1 and len(steps) for the image and for outputs.
    device: the name of the one where it lies.
    """

    shape: Shape
    precision: Precision
    layer: int
    first: int
    last: int
    device: str

    @property
    def values(self) -> int:
        """Count the values for one image."""
        return self.shape[0] * self.shape[1] * self.shape[2]


@dataclass(frozen=True)
class Plan:
    """A verified forward pass of one network at one assignment of precisions.

    slots:       slot 0 is the image, NHWC fp32.
    outputs:     slots of the tensors that enter the heads (without heads: of the last layer's), all fp32.
    layer_slots: for each layer the slot of its result.
    lowerings:   for each layer what it does, before anything is fused.
    """

    network: NetworkSpec
    precision: PrecisionPlan
    options: EngineOptions
    steps: tuple[Step, ...]
    slots: tuple[Slot, ...]
    outputs: tuple[int, ...]
    layer_slots: tuple[int, ...]
    lowerings: tuple[Lowering, ...]

    @cached_property
    def conversions(self) -> tuple[tuple[Step, ...], ...]:
        """Return for each layer the conversion steps that were inserted on its behalf."""
        by_layer: list[list[Step]] = [[] for _ in self.network.layers]
        for step in self.steps:
            # The conversion of a result without heads belongs to the last layer.
            if step.operation.is_conversion:
                by_layer[step.layer].append(step)
        return tuple(tuple(steps) for steps in by_layer)

    @cached_property
    def unchecked_outputs(self) -> tuple[tuple[int, int], ...]:
        """Return (slot, step that writes it, 0 for the image) of outputs that no convolution has checked to be finite."""
        writers = {step.output: number for number, step in enumerate(self.steps) if not step.operation.is_head}
        unchecked = []
        for slot in dict.fromkeys(self.outputs):
            number = writers.get(slot, -1)
            while number >= 0 and isinstance(self.steps[number].operation, Transfer):
                number = writers.get(self.steps[number].inputs[0], -1)
            if number < 0 or not self.steps[number].operation.checks_result:
                unchecked.append((slot, writers.get(slot, 0)))
        return tuple(unchecked)

    def text(self) -> str:
        """Return one line per step, for people and for tests."""
        lines = []
        for number, step in enumerate(self.steps):
            sources = " ".join(f"s{slot}" for slot in step.inputs)
            before, after = str(step.input_precision), str(step.output_precision)
            change = before if before == after else f"{before} -> {after}"
            height, width, channels = self.slots[step.output].shape
            name = self.network.layers[step.layer].name
            detail = f" ({step.operation.detail})" if step.operation.detail else ""
            lines.append(
                f"{number:3d} {step.operation.name}{detail} for {name}: {sources} -> s{step.output}, "
                f"{width}x{height}x{channels}, {change}"
            )
        return "\n".join(lines)


def build_plan(network: NetworkSpec, precision_plan: PrecisionPlan, options: EngineOptions = DEFAULT_OPTIONS) -> Plan:
    """Build the steps of one forward pass, verified.

    Raises: PrecisionError for calibrated ranges that are missing, EngineError when verification fails.
    """
    keyed = {index: precision_plan[index] for index in precision_plan.keyed}
    layout = lay_out(Lowerings(network, options, keyed), precision_plan.precisions)
    return plan_of(network, precision_plan, options, layout)


def plan_of(network: NetworkSpec, precision_plan: PrecisionPlan, options: EngineOptions, layout: Layout) -> Plan:
    """Turn a layout into a plan, verified. Raises: EngineError."""
    slots = zip(layout.shapes, layout.precisions, layout.layers, *layout.lifetimes(), layout.devices, strict=True)
    plan = Plan(
        network,
        precision_plan,
        options,
        tuple(layout.steps),
        tuple(Slot(*fields) for fields in slots),
        tuple(layout.outputs),
        tuple(layout.results),
        tuple(layout.lowerings),
    )
    verify_plan(plan)
    return plan


def layout_of(plan: Plan) -> Layout:
    """Return the plan's steps and slots as a layout that can be changed."""
    slots = plan.slots
    return Layout(
        [slot.shape for slot in slots],
        [slot.precision for slot in slots],
        [slot.layer for slot in slots],
        list(plan.steps),
        list(plan.outputs),
        list(plan.layer_slots),
        list(plan.lowerings),
        [slot.device for slot in slots],
    )


def verify_plan(plan: Plan) -> None:
    """Check that no step gets a precision, a shape, a device or a tensor that it does not declare.

    Raises: EngineError that names the step and the layer.
    """
    written_slots = {0}
    for number, step in enumerate(plan.steps):
        problem = _step_problem(plan, step, written_slots)
        if problem:
            layer = plan.network.layers[step.layer]
            raise EngineError(f"step {number} ({step.operation.name}) of layer {layer.index} ({layer.name}): {problem}")
        written_slots.add(step.output)
    for slot in plan.outputs:
        if slot not in written_slots or plan.slots[slot].precision is not FP32:
            raise EngineError(f"output slot {slot} is not written as fp32")
        if plan.slots[slot].device != HOST.name:
            raise EngineError(f"output slot {slot} lies on {plan.slots[slot].device}; transfer it")


def _step_problem(plan: Plan, step: Step, written_slots: set[int]) -> str:
    operation, out = step.operation, plan.slots[step.output]
    for slot in step.inputs:
        if slot not in written_slots:
            return f"reads slot {slot} before it is written"
        if plan.slots[slot].precision is not step.input_precision:
            return f"declares {step.input_precision} but slot {slot} holds {plan.slots[slot].precision}"
        if isinstance(operation, Transfer):
            if plan.slots[slot].device == out.device or operation.target != out.device:
                return f"transfers slot {slot} on {plan.slots[slot].device} to slot {step.output} on {out.device}"
        elif plan.slots[slot].device != out.device:
            return f"reads slot {slot} on {plan.slots[slot].device} but runs on {out.device}"
    if out.precision is not step.output_precision:
        return f"declares to give {step.output_precision} but slot {step.output} holds {out.precision}"
    if operation.is_head:
        return "" if operation.output_precision(step.input_precision) else f"a head takes fp32, not {step.input_precision}"
    if step.output in written_slots:
        return f"writes slot {step.output} a second time"
    if operation.output_precision(step.input_precision) is not step.output_precision:
        return f"cannot turn {step.input_precision} into {step.output_precision}"
    expected_shape = operation.result_shape(plan.network, [plan.slots[slot].shape for slot in step.inputs])
    return "" if out.shape == expected_shape else f"gives the shape {out.shape} where {expected_shape} follows from its inputs"
