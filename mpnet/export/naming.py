# SPDX-License-Identifier: MIT
"""Names of what is written to a file: they tell their layer, so that what engines say of nodes can be read back."""

from __future__ import annotations


def layer_name(index: int, role: str) -> str:
    """Return the name of what is written on behalf of a layer: `layer_012_conv`. `layer_of` reads it back."""
    return f"layer_{index:03d}_{role}"


def layer_of(name: str) -> int | None:
    """Return the layer that a node's or a tensor's name tells, also with what engines put before or behind it."""
    _, prefix, behind_prefix = name.partition("layer_")
    digits = behind_prefix.partition("_")[0]
    return int(digits) if prefix and digits.isdigit() else None


def unused(name: str, used_names: set[str]) -> str:
    """Return the name, or with the first number behind it that nothing has yet; note that it is used."""
    candidate, number = name, 1
    while candidate in used_names:
        number += 1
        candidate = f"{name}_{number}"
    used_names.add(candidate)
    return candidate
