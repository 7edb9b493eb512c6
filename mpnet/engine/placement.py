# SPDX-License-Identifier: MIT
"""The device of each step: that of the kernels wherever these support the operation, else the CPU.

What a step reads lies where it runs. A tensor that is needed elsewhere is copied there once, by a step that plans show; the
image comes from the CPU and heads go back to it. With kernels of the CPU nothing changes.
"""

from __future__ import annotations

from mpnet.engine.layout import Layout, Step
from mpnet.engine.operations import Dequantize, Operation, Quantize, Transfer
from mpnet.engine.plan import Plan, layout_of, plan_of
from mpnet.kernels.device import HOST
from mpnet.kernels.implementation import Kernels
from mpnet.model.precision import Precision


def is_supported(operation: Operation, input_precision: Precision, kernels: Kernels, *, by_tensorflow: bool = False) -> bool:
    """Return whether kernels of another device than the CPU run an operation on inputs stored as `takes`.

    by_tensorflow: whether the inputs are codes of one of TensorFlow's modes, which the CPU alone turns into reals.
    """
    needs = operation.needs(input_precision)
    if not needs or (by_tensorflow and isinstance(operation, Dequantize)):
        return False
    return all(kernels.supports(function, precision) for function, precision in needs)


def place_plan(plan: Plan, kernels: Kernels) -> Plan:
    """Return the plan with its steps on the kernels' device and the CPU, verified. Raises: EngineError."""
    if kernels.device is HOST:
        return plan
    layout = layout_of(plan)
    place(layout, kernels)
    return plan_of(plan.network, plan.precision, plan.options, layout)


def place(layout: Layout, kernels: Kernels) -> None:
    """Put every step of a layout that lies on the CPU where it runs, with a Transfer wherever a tensor changes sides."""
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
        on_device = is_supported(operation, step.input_precision, kernels, by_tensorflow=codes)
        device = kernels.device.name if on_device else HOST.name
        inputs = tuple([slot_on(device, slot, step.layer) for slot in step.inputs])
        if not operation.is_head:
            layout.devices[step.output] = device
        layout.steps.append(step._replace(inputs=inputs, output=inputs[0] if operation.is_head else step.output))
    layout.outputs = [slot_on(HOST.name, slot, layout.layers[slot]) for slot in layout.outputs]
