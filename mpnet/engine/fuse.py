# SPDX-License-Identifier: MIT
"""Fewer, larger kernel calls with the same bits.

Where a convolution's fp32 result is read only by an activation that runs as a step of its own, the convolution applies it in
its output stage.

Where a convolution's fp32 result is read only by a Quantize with a calibrated range (perhaps through poolings and
upsamplings), the convolution quantises in its output stage and what lies between works on int8: with fixed scale and
zero point quantising never changes the order of values, so it commutes with taking maxima and with copying. Where the
convolution cannot, what is upsampled is quantised, not the many copies of it.
A dynamic range is not known before the whole result is, so there Quantize stays a pass of its own.

Where a concatenation is read only by such a Quantize, its inputs are quantised instead, so that it copies codes; each input by
the convolution that it comes from, where nobody else reads it. Slices that are joined again in their order are what they were
cut from. Poolings of an input that are inputs as well pool its codes.

Where a convolution's result is read only by a 2x2/2 pooling, the convolution pools it a few rows at a time, while they
are in the caches: memory sees a quarter of the values.
"""

from __future__ import annotations

from mpnet.engine.layout import Layout, Step
from mpnet.engine.operations import Concat, Convolve, IntegerConcat, Map, Quantize, Slice, Upsample
from mpnet.engine.plan import Plan, layout_of, plan_of
from mpnet.model.network import NetworkSpec


def fuse_plan(plan: Plan, for_export: bool = False) -> Plan:
    """Return an equivalent plan with fewer steps, verified. Slots that are no longer written keep their place and lie empty."""
    layout = layout_of(plan)
    joined = fuse(layout, plan.network, for_export)
    return plan_of(plan.network, plan.precision, plan.options, layout) if joined else plan


def fuse(layout: Layout, network: NetworkSpec, for_export: bool = False) -> bool:
    """Join what can be joined. Returns whether there was anything.

    for_export: only what other engines do alike: activations stay apart from convolutions, concatenations as they are.
    """
    has_changed = False
    if not for_export and (_join_slices(layout) | _quantize_inputs(layout)):
        has_changed = True
        _drop_unread(layout)
    steps = layout.steps
    readers, writers = layout.readers(), [-1] * len(layout.shapes)
    for number, step in enumerate(steps):
        if not step.operation.is_head:
            writers[step.output] = number
    removed = set()
    for number, step in enumerate(() if for_export else steps):
        if isinstance(step.operation, Map) and _map_earlier(layout, network, step, readers, writers):
            removed.add(number)
    for number, step in enumerate(steps):
        fixed = isinstance(step.operation, Quantize) and step.operation.range is not None
        if fixed and _quantize_earlier(layout, step, readers, writers):
            removed.add(number)
        elif fixed and not for_export and _quantize_before_upsample(layout, number, readers, writers):
            has_changed = True
    for number, step in enumerate(steps):
        writer = writers[step.inputs[0]]
        if number in removed or writer < 0 or readers[step.inputs[0]] != 1:
            continue
        operation = steps[writer].operation.joined(step.operation)
        if operation is not None:
            steps[writer] = steps[writer]._replace(operation=operation, output=step.output)
            writers[step.output] = writer
            removed.add(number)
    layout.steps = [step for number, step in enumerate(steps) if number not in removed]
    return bool(removed) or has_changed


def _join_slices(layout: Layout) -> bool:
    """Let concatenations read the whole of what they join from its slices."""
    steps, slices = list(layout.steps), {step.output: step for step in layout.steps if isinstance(step.operation, Slice)}
    for number, step in enumerate(steps):
        if isinstance(step.operation, Concat):
            inputs: list[int] = []
            for slot in step.inputs:
                inputs = _last_joined(layout, [*inputs, slot], slices)
            if len(inputs) > 1:
                steps[number] = step._replace(inputs=tuple(inputs))
    has_changed = steps != layout.steps
    layout.steps = steps
    return has_changed


def _last_joined(layout: Layout, slots: list[int], slices: dict[int, Step]) -> list[int]:
    """Replace the last slots by the one that they are slices of, where they are all of its slices in order."""
    if slots[-1] not in slices:
        return slots
    [source] = slices[slots[-1]].inputs
    start_position, start_channel = len(slots), layout.shapes[source][2]
    while start_position > 0 and start_channel > 0 and slots[start_position - 1] in slices:
        step = slices[slots[start_position - 1]]
        assert isinstance(step.operation, Slice)
        if step.inputs != (source,) or step.operation.stop != start_channel:
            break
        start_position, start_channel = start_position - 1, step.operation.start
    return slots if start_channel > 0 else [*slots[:start_position], source]


def _quantize_inputs(layout: Layout) -> bool:
    """Quantise the inputs of a concatenation instead of its result, where nobody else reads that."""
    readers = layout.readers()
    writers = {step.output: number for number, step in enumerate(layout.steps) if type(step.operation) is Concat}
    quantized = {
        writers[step.inputs[0]]: step
        for step in layout.steps
        if isinstance(step.operation, Quantize)
        and step.operation.range is not None
        and step.inputs[0] in writers
        and readers[step.inputs[0]] == 1
    }
    makers = {step.output: step for step in layout.steps if not step.operation.is_head}
    quantized_slots = {step.output for step in quantized.values()}
    steps: list[Step] = []
    for number, step in enumerate(layout.steps):
        if number in quantized:
            steps += _quantized_inputs(layout, step, quantized[number], makers)
        elif step.output not in quantized_slots or step.operation.is_head:
            steps.append(step)
    layout.steps = steps
    return bool(quantized)


def _quantized_inputs(layout: Layout, concat: Step, quantize: Step, makers: dict[int, Step]) -> list[Step]:
    """Return the steps that quantise the inputs of a concatenation as `quantize` quantises the result, and join them.

    An input that was made of another one, by an operation before which one may as well quantise, is made of the other's codes.
    """
    steps: list[Step] = []
    code_slots: dict[int, int] = {}
    for slot in sorted(set(concat.inputs)):  # what others are made of comes first
        step, maker = quantize._replace(inputs=(slot,)), makers.get(slot)
        if maker is not None and maker.operation.keeps_order and maker.inputs[0] in code_slots:
            step = maker._replace(
                inputs=(code_slots[maker.inputs[0]],),
                input_precision=quantize.output_precision,
                output_precision=quantize.output_precision,
            )
        code_slots[slot] = layout.add_slot(
            layout.shapes[slot], quantize.output_precision, layout.layers[slot], layout.devices[slot]
        )
        steps.append(step._replace(output=code_slots[slot]))
    inputs = tuple([code_slots[slot] for slot in concat.inputs])
    return [
        *steps,
        Step(IntegerConcat(), concat.layer, inputs, quantize.output, quantize.output_precision, quantize.output_precision),
    ]


def _drop_unread(layout: Layout) -> None:
    """Drop what moves values to where nobody reads them any more."""
    readers = layout.readers()
    remaining: list[Step] = []
    for step in reversed(layout.steps):
        if step.operation.moves_values and readers[step.output] == 0:
            for slot in step.inputs:
                readers[slot] -= 1
        else:
            remaining.append(step)
    layout.steps = remaining[::-1]


def _map_earlier(layout: Layout, network: NetworkSpec, step: Step, readers: list[int], writers: list[int]) -> bool:
    """Let the convolution that the values come from apply an activation, where nobody else reads what it gave."""
    steps, [slot] = layout.steps, step.inputs
    writer = writers[slot]
    if writer < 0 or readers[slot] != 1 or step.input_precision is not step.output_precision:
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


def _quantize_before_upsample(layout: Layout, number: int, readers: list[int], writers: list[int]) -> bool:
    """Swap a Quantize with an Upsample whose only reader it is."""
    steps, quantize = layout.steps, layout.steps[number]
    position = writers[quantize.inputs[0]]
    if position < 0 or readers[quantize.inputs[0]] != 1 or not isinstance(steps[position].operation, Upsample):
        return False
    upsample, codes = steps[position], quantize.output_precision
    [source] = upsample.inputs
    slot = layout.add_slot(layout.shapes[source], codes, layout.layers[source], layout.devices[source])
    readers.append(1)
    writers.append(position)
    writers[quantize.output] = number
    steps[position] = quantize._replace(inputs=upsample.inputs, output=slot)
    steps[number] = upsample._replace(inputs=(slot,), output=quantize.output, input_precision=codes, output_precision=codes)
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
    codes = quantize.output_precision
    steps[chain[0]] = steps[chain[0]]._replace(operation=operation, output_precision=codes)
    for position in chain[1:]:
        steps[position] = steps[position]._replace(input_precision=codes, output_precision=codes)
    for position in chain[:-1]:
        layout.precisions[steps[position].output] = codes
    # The last of the chain writes what the Quantize step wrote.
    steps[chain[-1]] = steps[chain[-1]]._replace(output=quantize.output)
    writers[quantize.output] = chain[-1]
    return True
