# SPDX-License-Identifier: MIT
"""One arena for all tensors of a plan: slots whose lifetimes do not meet share memory."""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.layout import ALIGNMENT, peak_bytes, stored_bytes
from mpnet.engine.plan import Plan


@dataclass(frozen=True)
class Arena:
    """Where each slot lies, for one image; a batch of n images multiplies offsets and sizes by n.

    offsets:     bytes, by slot; -1 for the image, which the caller brings, and for slots that nothing writes.
    size_bytes:  of the arena, for one image.
    peak_bytes:  largest sum of slots that live at the same time, the image included: no plan can need less.
    """

    offsets: tuple[int, ...]
    size_bytes: int
    peak_bytes: int


def plan_arena(plan: Plan) -> Arena:
    """Place the slots, largest first, each at the lowest offset that is free during its life."""
    slots = plan.slots
    sizes = [stored_bytes(slot.shape, slot.precision) for slot in slots]
    offsets = [-1] * len(slots)
    placed: list[int] = []
    # A fused plan has slots that nothing writes: they live nowhere and need nothing.
    used = [index for index in range(1, len(slots)) if slots[index].first <= slots[index].last]
    for index in sorted(used, key=lambda i: (-sizes[i], i)):
        offset = 0
        meeting = sorted(
            (offsets[other], sizes[other])
            for other in placed
            if slots[other].first <= slots[index].last and slots[index].first <= slots[other].last
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
    """Memory of plans that are gone, kept for the next: fresh pages cost more than a small network's forward pass.

    Safe to use from threads. Memory comes back when the last array that lies in it is gone.
    """

    def __init__(self, spare: int = 2) -> None:
        self._spare: deque[NDArray[np.uint8]] = deque(maxlen=spare)

    def take(self, size_bytes: int) -> NDArray[np.uint8]:
        """At least so many bytes, of unknown content. Raises: MemoryError."""
        raw = None
        with contextlib.suppress(IndexError):
            raw = self._spare.pop()
        if raw is None or raw.nbytes < size_bytes:
            raw = np.empty(size_bytes, np.uint8)
        # NumPy follows views to the array that owns the memory; behind a memoryview it stops at this one.
        memory = np.frombuffer(raw.data, np.uint8)
        weakref.finalize(memory, self._spare.append, raw)
        return memory


def allocate(arena: Arena, plan: Plan, images: int, pool: ArenaPool) -> tuple[list[NDArray[Any] | None], NDArray[np.uint8]]:
    """(arrays by slot as (images, h, w, c), the memory behind them); None where the offset is -1.

    Raises: MemoryError.
    """
    memory = pool.take(arena.size_bytes * images + ALIGNMENT)
    start = -memory.ctypes.data % ALIGNMENT
    arrays: list[NDArray[Any] | None] = []
    for slot, offset in zip(plan.slots, arena.offsets, strict=True):
        if offset < 0:
            arrays.append(None)
            continue
        dtype = slot.precision.stored.dtype
        low = start + offset * images
        part = memory[low : low + slot.values * images * dtype.itemsize]
        arrays.append(part.view(dtype).reshape(images, *slot.shape))
    return arrays, memory
