"""Fewer, larger kernel calls with the same bits.

Where a convolution's fp32 result is read only by a Quantize with a calibrated range (perhaps through poolings and
upsamplings), the convolution quantises in its output stage and what lies between works on int8: with fixed scale and
zero point quantising never changes the order of values, so it commutes with taking maxima and with copying.
A dynamic range is not known before the whole result is, so there Quantize stays a pass of its own.

Where a convolution's result is read only by a 2x2/2 pooling, the convolution pools it a few rows at a time, while they
are in the caches: memory sees a quarter of the values.
"""

from __future__ import annotations

from dataclasses import replace

from mpnet.engine.operations import (
    Convolve,
    ConvolvePool,
    ConvolveQuantize,
    MaxPool,
    Operation,
    Quantize,
    Upsample,
)
from mpnet.engine.plan import Plan, Slot, Step, verify_plan
from mpnet.spec.precision import FP32, INT8

# Modes whose reciprocal scale the convolutions' output stage uses in the same order of operations.
_FUSED_MODES = ("affine", "symmetric", "power_of_two")


def fuse_plan(plan: Plan) -> Plan:
    """An equivalent plan, verified. Slots that are no longer written keep their place and lie empty."""
    return _fuse_pools(_fuse_quantize(plan))


def pooled(convolve: Operation | None, pool: Operation | None) -> ConvolvePool | None:
    """Both operations as one, where kernels can do that."""
    if not isinstance(convolve, Convolve | ConvolveQuantize) or not isinstance(pool, MaxPool):
        return None
    fits = (pool.size, pool.stride) == (2, 2) and pool.padding <= 1
    return ConvolvePool(convolve, pool) if fits else None


def _fuse_pools(plan: Plan) -> Plan:
    steps: list[Step | None] = list(plan.steps)
    readers = _readers(plan)
    writers = _writers(plan)
    for number, step in enumerate(plan.steps):
        writer = writers.get(step.inputs[0])
        if writer is None or len(readers[step.inputs[0]]) != 1:
            continue
        first = plan.steps[writer]
        operation = pooled(first.operation, step.operation)
        if operation is not None:
            steps[writer] = replace(first, operation=operation, output=step.output)
            steps[number] = None
    return _kept(plan, steps, list(plan.slots))


def _fuse_quantize(plan: Plan) -> Plan:
    if not any(_fusible(step) for step in plan.steps):
        return plan
    steps: list[Step | None] = list(plan.steps)
    slots = list(plan.slots)
    readers = _readers(plan)
    for number, step in enumerate(plan.steps):
        operation = step.operation
        if not isinstance(operation, Quantize) or not _fusible(step):
            continue
        chain = _chain_before(plan, steps, number, readers)
        if chain is None:
            continue
        first = steps[chain[0]]
        assert first is not None
        assert isinstance(first.operation, Convolve)
        steps[chain[0]] = replace(first, operation=ConvolveQuantize(first.operation, operation), gives=INT8)
        for position in chain[1:]:
            moved = steps[position]
            assert moved is not None
            steps[position] = replace(moved, takes=INT8, gives=INT8)
        # The last of the chain writes what the Quantize step wrote.
        for position in chain[:-1]:
            middle = steps[position]
            assert middle is not None
            slots[middle.output] = replace(slots[middle.output], precision=INT8)
        last = steps[chain[-1]]
        assert last is not None
        steps[chain[-1]] = replace(last, output=step.output)
        steps[number] = None
    return _kept(plan, steps, slots)


def _kept(plan: Plan, steps: list[Step | None], slots: list[Slot]) -> Plan:
    kept = tuple(step for step in steps if step is not None)
    if len(kept) == len(plan.steps):
        return plan
    fused = replace(plan, steps=kept, slots=_lifetimes(plan, kept, slots))
    verify_plan(fused)
    return fused


def _fusible(step: Step) -> bool:
    operation = step.operation
    return isinstance(operation, Quantize) and operation.range is not None and operation.scheme.mode in _FUSED_MODES


def _readers(plan: Plan) -> dict[int, list[int]]:
    """Slot -> the steps that read it; outputs count as read by a step past the end."""
    readers: dict[int, list[int]] = {}
    for number, step in enumerate(plan.steps):
        for slot in step.inputs:
            readers.setdefault(slot, []).append(number)
    for slot in plan.outputs:
        readers.setdefault(slot, []).append(len(plan.steps))
    return readers


def _writers(plan: Plan) -> dict[int, int]:
    return {step.output: number for number, step in enumerate(plan.steps) if step.output not in step.inputs}


def _chain_before(
    plan: Plan, steps: list[Step | None], quantize: int, readers: dict[int, list[int]]
) -> list[int] | None:
    """Convolve, then any MaxPool and Upsample, up to the step before `quantize`; None when somebody else reads one."""
    writers = _writers(plan)
    chain: list[int] = []
    slot = plan.steps[quantize].inputs[0]
    while True:
        writer = writers.get(slot)
        if writer is None or len(readers[slot]) != 1 or steps[writer] != plan.steps[writer]:
            return None
        chain.append(writer)
        step = plan.steps[writer]
        if isinstance(step.operation, Convolve):
            # An fp16 result is rounded to half before it is quantised; the output stage rounds once.
            return chain[::-1] if step.gives == FP32 else None
        if not isinstance(step.operation, MaxPool | Upsample):
            return None
        slot = step.inputs[0]


def _lifetimes(plan: Plan, steps: tuple[Step, ...], slots: list[Slot]) -> tuple[Slot, ...]:
    """The slots with first and last recounted; those without a writer live nowhere."""
    first = {0: -1}
    last = {0: -1}
    for number, step in enumerate(steps):
        for slot in step.inputs:
            last[slot] = number
        if step.output not in step.inputs:
            first[step.output] = last[step.output] = number
    for slot in plan.outputs:
        last[slot] = len(steps)
    empty = (len(steps), -1)
    return tuple(
        replace(slot, first=first.get(index, empty[0]), last=last.get(index, empty[1]))
        for index, slot in enumerate(slots)
    )
