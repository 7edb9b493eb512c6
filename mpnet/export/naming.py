# SPDX-License-Identifier: MIT
"""Names of what is written to a file: they tell their layer, so that what engines say of nodes can be read back."""

from __future__ import annotations


def layer_name(index: int, what: str) -> str:
    """The name of what is written on behalf of a layer: `layer_012_conv`. `layer_of` reads it back."""
    return f"layer_{index:03d}_{what}"


def layer_of(name: str) -> int | None:
    """The layer that a node's or a tensor's name tells, also with what engines put before or behind it."""
    _, prefix, rest = name.partition("layer_")
    digits = rest.partition("_")[0]
    return int(digits) if prefix and digits.isdigit() else None


def unused(name: str, taken: set[str]) -> str:
    """The name, or with the first number behind it that nothing has yet; it is taken from now on."""
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    taken.add(free)
    return free
