# SPDX-License-Identifier: MIT
"""The arena: nothing alive is overwritten, and little is wasted."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.engine.assign import assign
from mpnet.engine.cost import layer_costs, plan_cost
from mpnet.engine.layout import ALIGNMENT, stored_bytes
from mpnet.engine.memory import ArenaPool, allocate, plan_arena
from mpnet.engine.plan import build_plan
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.device import Storage
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import PRECISIONS


@pytest.mark.parametrize("precision", PRECISIONS)
def test_slots_that_live_together_lie_apart(network: NetworkSpec, precision: str) -> None:
    plan = build_plan(network, assign(network, precision, {"maxpool-*": "int8"}))
    arena = plan_arena(plan)
    extents = [
        (slot.first, slot.last, offset, offset + stored_bytes(slot.shape, slot.precision))
        for slot, offset in zip(plan.slots, arena.offsets, strict=True)
        if offset >= 0
    ]
    assert len(extents) == len(plan.slots) - 1
    for i, (first, last, low, high) in enumerate(extents):
        assert low % ALIGNMENT == 0
        assert high <= arena.size_bytes
        for other_first, other_last, other_low, other_high in extents[:i]:
            if first <= other_last and other_first <= last:
                assert high <= other_low or other_high <= low


def test_a_chain_needs_its_two_largest_neighbours() -> None:
    network = parse_cfg(
        "[net]\nwidth=16\nheight=16\nchannels=1\n[convolutional]\nfilters=4\n[convolutional]\nfilters=8\n[maxpool]\nstride=2\n"
    )
    arena = plan_arena(build_plan(network, assign(network)))
    assert arena.size_bytes == 256 * 4 * (4 + 8)
    assert arena.peak_bytes == 256 * 4 * (4 + 8)


def test_arrays_are_aligned_views_of_one_memory(network: NetworkSpec) -> None:
    plan = build_plan(network, assign(network, "int8"))
    arena = plan_arena(plan)
    storages, memory = allocate(arena, plan, 3, ArenaPool())
    assert memory.nbytes == 3 * arena.size_bytes
    for slot, storage in zip(plan.slots[1:], storages[1:], strict=True):
        assert storage is not None
        array = storage.host()
        assert array.shape == (3, *slot.shape)
        assert array.dtype == slot.precision.stored.dtype
        assert array.ctypes.data % ALIGNMENT == 0
        assert np.shares_memory(array, memory.host())


def address_of(storage: Storage) -> int:
    return storage.host().ctypes.data


def test_memory_comes_back_when_nothing_lies_in_it() -> None:
    pool = ArenaPool()
    storage = pool.take(1000)
    view, address = storage.cut(100, (25,), np.dtype(np.float32)).host(), address_of(storage)
    del storage
    assert address_of(pool.take(1000)) != address  # the view still lies there
    del view
    assert address_of(pool.take(900)) == address
    assert pool.take(5000).nbytes == 5000


def test_costs_by_hand() -> None:
    network = parse_cfg(
        "[net]\nwidth=4\nheight=4\nchannels=2\n"
        "[convolutional]\nbatch_normalize=1\nfilters=8\nsize=3\npad=1\n"
        "[convolutional]\nfilters=4\nsize=1\nstride=2\n",
        "t.cfg",
    )
    plan = build_plan(network, assign(network, "int8", {"last": "fp16"}))
    cost = plan_cost(plan)
    first, second = 16 * 8 * 18, 4 * 4 * 8
    assert (cost["macs"], cost["int8_macs"]) == (first + second, first)
    assert cost["bit_operations"] == first * 64 + second * 256
    assert cost["weight_bytes"] == (144 + 32 + 32) + (2 * 32 + 16)
    # At the cast: 4x4x8 in fp32 beside itself in fp16.
    assert cost["peak_activation_bytes"] == 512 + 256
    rows = layer_costs(plan)
    names = ("name", "precision", "conversions", "parameters", "activation_bytes")
    assert [tuple(getattr(row, name) for name in names) for row in rows] == [
        ("conv-1", "int8", ("fp32 -> int8",), 144 + 32, 512),
        ("conv-2", "fp16", ("fp32 -> fp16", "fp16 -> fp32"), 36, 32),
    ]
    assert rows[0].selectors == ("0", "conv-1", "first", "3x3")
