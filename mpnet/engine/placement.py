# SPDX-License-Identifier: MIT
"""The device of each step: that of the kernels wherever these support the operation, else the CPU.

What a step reads lies where it runs. A tensor that is needed elsewhere is copied there once, by a step that plans show; the
image comes from the CPU and heads go back to it. With kernels of the CPU nothing changes.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple, Sequence

from mpnet.engine.layout import Layout, Step
from mpnet.engine.operations import Dequantize, Operation, Quantize, Transfer
from mpnet.engine.plan import Plan, layout_of, plan_of
from mpnet.errors import FallbackWarning
from mpnet.kernels.device import HOST
from mpnet.kernels.implementation import Kernels
from mpnet.messages import few
from mpnet.model.network import NETWORK_INPUT, NetworkSpec
from mpnet.model.precision import Precision


class Fallback(NamedTuple):
    """A step that the CPU runs, and why kernels of another device do not. layer: its index, or NETWORK_INPUT."""

    operation: str
    layer: int
    reason: str


def is_supported(operation: Operation, input_precision: Precision, kernels: Kernels, *, by_tensorflow: bool = False) -> bool:
    """Return whether kernels of another device than the CPU run an operation on inputs stored as `takes`.

    by_tensorflow: whether the inputs are codes of one of TensorFlow's modes, which the CPU alone turns into reals.
    """
    return not _refusal(operation, input_precision, kernels, by_tensorflow)


def _refusal(operation: Operation, input_precision: Precision, kernels: Kernels, by_tensorflow: bool) -> str:
    """Return why kernels of another device do not run an operation, '' where they do; arguments as of `is_supported`."""
    needs = operation.needs(input_precision)
    if not needs or (by_tensorflow and isinstance(operation, Dequantize)):
        return f"{kernels.name} has no kernel for it"
    return next((reason for each in needs if (reason := kernels.refusal(*each))), "")


def place_plan(plan: Plan, kernels: Kernels) -> Plan:
    """Return the plan with its steps on the kernels' device and the CPU, verified; a FallbackWarning says what the CPU runs.

    Raises: EngineError.
    """
    if kernels.device is HOST:
        return plan
    layout = layout_of(plan)
    for line in describe_fallbacks(plan.network, place(layout, kernels), kernels):
        warnings.warn(line, FallbackWarning, stacklevel=2)
    return plan_of(plan.network, plan.precision, plan.options, layout)


def list_fallbacks(plan: Plan, kernels: Kernels) -> list[str]:
    """Return a line for each operation of a plan that the CPU runs in place of the kernels' device, and why."""
    return [] if kernels.device is HOST else describe_fallbacks(plan.network, place(layout_of(plan), kernels), kernels)


def describe_fallbacks(network: NetworkSpec, fallbacks: Sequence[Fallback], kernels: Kernels) -> list[str]:
    """Return a line for each operation and reason, with the layers that have it."""
    layers: dict[tuple[str, str], dict[str, None]] = {}
    for operation, layer, reason in fallbacks:
        name = "the image" if layer == NETWORK_INPUT else network.layers[layer].name
        layers.setdefault((operation, reason), {})[name] = None
    host = kernels.host_kernels.name
    return [
        f"{operation} of {few(list(names))} falls back to {host}: {reason}" for (operation, reason), names in layers.items()
    ]


def place(layout: Layout, kernels: Kernels) -> list[Fallback]:
    """Put every step of a layout that lies on the CPU where it runs, with a Transfer wherever a tensor changes sides.

    Returns what stays on the CPU.
    """
    fallbacks: list[Fallback] = []
    steps, layout.steps = layout.steps, []
    copies: dict[tuple[int, str], int] = {}
    by_tensorflow: set[int] = set()

    def slot_on(device: str, slot: int, layer: int) -> int:
        """Return the slot, or its copy on the device, which is made where it is needed first."""
        if layout.devices[slot] == device:
            return slot
        if (slot, device) not in copies:
            precision = layout.precisions[slot]
            copy = copies[slot, device] = layout.add_slot(layout.shapes[slot], precision, layout.layers[slot], device)
            layout.steps.append(Step(Transfer(device), layer, (slot,), copy, precision, precision))
        return copies[slot, device]

    for step in steps:
        operation, codes = step.operation, not by_tensorflow.isdisjoint(step.inputs)
        if (isinstance(operation, Quantize) and operation.scheme.is_tensorflow) or (codes and operation.moves_values):
            by_tensorflow.add(step.output)
        refusal = "" if operation.is_head else _refusal(operation, step.input_precision, kernels, codes)
        if refusal:
            fallbacks.append(Fallback(operation.name, step.layer, refusal))
        device = HOST.name if refusal or operation.is_head else kernels.device.name
        inputs = tuple([slot_on(device, slot, step.layer) for slot in step.inputs])
        if not operation.is_head:
            layout.devices[step.output] = device
        layout.steps.append(step._replace(inputs=inputs, output=inputs[0] if operation.is_head else step.output))
    layout.outputs = [slot_on(HOST.name, slot, layout.layers[slot]) for slot in layout.outputs]
    return fallbacks
