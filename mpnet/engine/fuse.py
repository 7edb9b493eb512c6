# SPDX-License-Identifier: MIT
"""Fewer, larger kernel calls with the same bits.

Where a convolution's fp32 result is read only by an activation that runs as a step of its own, the convolution applies it in
its output stage.

Where a convolution's fp32 result is read only by a Quantize with a calibrated range (perhaps through poolings and
upsamplings), the convolution quantises in its output stage and what lies between works on int8: with fixed scale and
zero point quantising never changes the order of values, so it commutes with taking maxima and with copying.
A dynamic range is not known before the whole result is, so there Quantize stays a pass of its own.

Where a convolution's result is read only by a 2x2/2 pooling, the convolution pools it a few rows at a time, while they
are in the caches: memory sees a quarter of the values.
"""

from __future__ import annotations

from mpnet.engine.layout import Layout, Step
from mpnet.engine.operations import Convolve, Map, Quantize
from mpnet.engine.plan import Plan, layout_of, plan_of
from mpnet.model.network import NetworkSpec


def fuse_plan(plan: Plan, maps: bool = True) -> Plan:
    """An equivalent plan, verified. Slots that are no longer written keep their place and lie empty. maps: as `fuse` says."""
    layout = layout_of(plan)
    joined = fuse(layout, plan.network, maps)
    return plan_of(plan.network, plan.precision, plan.options, layout) if joined else plan


def fuse(layout: Layout, network: NetworkSpec, maps: bool = True) -> bool:
    """Join what can be joined. Returns whether there was anything. maps: activations with convolutions as well."""
    steps = layout.steps
    readers = [0] * len(layout.shapes)
    writers = [-1] * len(layout.shapes)
    for number, step in enumerate(steps):
        for slot in step.inputs:
            readers[slot] += 1
        if not step.operation.is_head:
            writers[step.output] = number
    for slot in layout.outputs:
        readers[slot] += 1
    gone = set()
    for number, step in enumerate(steps if maps else ()):
        if isinstance(step.operation, Map) and _map_earlier(layout, network, step, readers, writers):
            gone.add(number)
    for number, step in enumerate(steps):
        fixed = isinstance(step.operation, Quantize) and step.operation.range is not None
        if fixed and _quantize_earlier(layout, step, readers, writers):
            gone.add(number)
    for number, step in enumerate(steps):
        writer = writers[step.inputs[0]]
        if number in gone or writer < 0 or readers[step.inputs[0]] != 1:
            continue
        operation = steps[writer].operation.joined(step.operation)
        if operation is not None:
            steps[writer] = steps[writer]._replace(operation=operation, output=step.output)
            writers[step.output] = writer
            gone.add(number)
    layout.steps = [step for number, step in enumerate(steps) if number not in gone]
    return bool(gone)


def _map_earlier(layout: Layout, network: NetworkSpec, step: Step, readers: list[int], writers: list[int]) -> bool:
    """Let the convolution that the values come from apply an activation, where nobody else reads what it gave."""
    steps, [slot] = layout.steps, step.inputs
    writer = writers[slot]
    if writer < 0 or readers[slot] != 1 or step.takes is not step.gives:
        return False
    convolution, activation = steps[writer].operation, step.operation
    joined = (
        convolution.mapped(activation, network) if isinstance(convolution, Convolve) and isinstance(activation, Map) else None
    )
    if joined is None:
        return False
    steps[writer] = steps[writer]._replace(operation=joined, output=step.output)
    writers[step.output] = writer
    return True


def _quantize_earlier(layout: Layout, quantize: Step, readers: list[int], writers: list[int]) -> bool:
    """Let the convolution that the values come from quantise, where nobody else reads what lies between."""
    steps = layout.steps
    chain: list[int] = []
    slot = quantize.inputs[0]
    while not chain or steps[chain[0]].operation.keeps_order:
        if writers[slot] < 0 or readers[slot] != 1:
            return False
        chain.insert(0, writers[slot])
        slot = steps[chain[0]].inputs[0]
    operation = steps[chain[0]].operation.joined(quantize.operation)
    if operation is None:
        return False
    codes = quantize.gives
    steps[chain[0]] = steps[chain[0]]._replace(operation=operation, gives=codes)
    for position in chain[1:]:
        steps[position] = steps[position]._replace(takes=codes, gives=codes)
    for position in chain[:-1]:
        layout.precisions[steps[position].output] = codes
    # The last of the chain writes what the Quantize step wrote.
    steps[chain[-1]] = steps[chain[-1]]._replace(output=quantize.output)
    writers[quantize.output] = chain[-1]
    return True
