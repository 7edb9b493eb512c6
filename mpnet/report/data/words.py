# SPDX-License-Identifier: MIT
"""Numbers, shapes and names as reports write them."""

from __future__ import annotations

import math


def shape_text(shape: list[int]) -> str:
    """Return (height, width, channels) as Darknet writes it: width x height x channels."""
    height, width, channels = shape
    return f"{width}x{height}x{channels}"


def clean(text: object) -> str:
    """Return `text` on one line without control characters: names from files must not move the cursor."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def number_text(value: float | None, digits: int = 2, signed: bool = False) -> str:
    """Return a number with fixed decimals; `-` for None and NaN. A true minus sign is left to the page."""
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    return text.replace("-", "", 1) if float(text) == 0 and text.startswith("-") else text
