# SPDX-License-Identifier: MIT
"""One arena for all tensors of a plan: slots whose lifetimes do not meet share memory."""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass

from mpnet.engine.layout import peak_bytes, stored_bytes
from mpnet.engine.plan import Plan
from mpnet.kernels.device import HOST, Device, Storage


@dataclass(frozen=True)
class Arena:
    """The place of each slot in memory, for one image; a batch of n images multiplies offsets and sizes by n.

    offsets:     bytes, by slot; -1 for the image, which the caller brings, and for slots that nothing writes.
    size_bytes:  of the arena, for one image.
    peak_bytes:  largest sum of slots that live at the same time, the image included: no plan can need less.
    """

    offsets: tuple[int, ...]
    size_bytes: int
    peak_bytes: int


def plan_arena(plan: Plan, device: str | None = None) -> Arena:
    """Place the slots, largest first, each at the lowest offset that is free during its life.

    device: whose slots, by its name; None: all, as if there were one device.
    """
    slots = plan.slots
    sizes = [stored_bytes(slot.shape, slot.precision) for slot in slots]
    offsets = [-1] * len(slots)
    placed: list[int] = []
    # A fused plan has slots that nothing writes: they live nowhere and need nothing.
    used_slots = [
        index
        for index in range(1, len(slots))
        if slots[index].first <= slots[index].last and device in (None, slots[index].device)
    ]
    for index in sorted(used_slots, key=lambda i: (-sizes[i], i)):
        offset = 0
        meeting = sorted(
            (offsets[neighbour], sizes[neighbour])
            for neighbour in placed
            if slots[neighbour].first <= slots[index].last and slots[index].first <= slots[neighbour].last
        )
        for start, size in meeting:
            if offset + sizes[index] <= start:
                break
            offset = max(offset, start + size)
        offsets[index] = offset
        placed.append(index)
    total = max((offsets[i] + sizes[i] for i in placed), default=0)
    peak = peak_bytes(sizes, [slot.first for slot in slots], [slot.last for slot in slots], len(plan.steps))
    return Arena(tuple(offsets), total, peak)


class ArenaPool:
    """Memory of a device that finished plans have left, kept for the next.

    Fresh pages cost more than a small network's forward pass.

    Safe to use from threads. Memory comes back when the last tensor that lies in it is gone.
    """

    def __init__(self, device: Device = HOST, spare: int = 2) -> None:
        self._device = device
        self._spare: deque[Storage] = deque(maxlen=spare)

    def take(self, size_bytes: int) -> Storage:
        """Return at least so many bytes, of unknown content. Raises: MemoryError."""
        memory = None
        with contextlib.suppress(IndexError):
            memory = self._spare.pop()
        if memory is None or memory.nbytes < size_bytes:
            memory = self._device.arena(size_bytes)
        return memory.lent(self._spare.append)


def allocate(arena: Arena, plan: Plan, images: int, pool: ArenaPool) -> tuple[list[Storage | None], Storage]:
    """Return (storages by slot as (images, h, w, c), the memory behind them); None where the offset is -1.

    Raises: MemoryError.
    """
    memory = pool.take(arena.size_bytes * images)
    storages: list[Storage | None] = []
    for slot, offset in zip(plan.slots, arena.offsets, strict=True):
        if offset < 0:
            storages.append(None)
        else:
            storages.append(memory.cut(offset * images, (images, *slot.shape), slot.precision.stored.dtype))
    return storages, memory
