# SPDX-License-Identifier: MIT
"""Shapes and names as reports write them."""

from __future__ import annotations

from typing import Sequence


def shape_text(shape: Sequence[int]) -> str:
    """Return (height, width, channels) as Darknet writes it: width x height x channels."""
    height, width, channels = shape
    return f"{width}x{height}x{channels}"


def clean(text: object) -> str:
    """Return `text` on one line without control characters: names from files must not move the cursor."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))
