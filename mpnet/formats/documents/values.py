# SPDX-License-Identifier: MIT
"""Written text -> typed values, by what their keys may hold; cfg and YAML are read by the same rules."""

from __future__ import annotations

import math
import re

from mpnet.model.keys import Key

# More than 18 digits are no number that anybody means, and int() need not try.
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_FLAGS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def is_integer(text: str) -> bool:
    """Return whether the text is a whole number; int() would also take ` 1` and `1_0`."""
    return _INTEGER.fullmatch(text) is not None


def is_real(text: str) -> bool:
    """Return whether the text is a number; float() would also take `nan`, `infinity` and `1_0`."""
    return _REAL.fullmatch(text) is not None


def typed(text: str, key: Key) -> str | int | float:
    """Return what the text of one value means. Raises: ValueError saying what it must be, such as `a number from 0 to 1`."""
    if key.kind == "integer":
        if is_integer(text) and key.low <= int(text) <= key.high:
            return int(text)
        raise ValueError(f"a whole number{key.range}")
    if key.kind == "number":
        if is_real(text) and math.isfinite(float(text)) and key.low <= float(text) <= key.high:
            return float(text)
        raise ValueError(f"a number{key.range}")
    if key.kind == "flag":
        if text.lower() in _FLAGS:
            return _FLAGS[text.lower()]
        if text in key.choices:
            return text
        raise ValueError(f"one of true, false, {', '.join(key.choices)}" if key.choices else "true or false")
    if key.choices and text not in key.choices:
        raise ValueError(f"one of {', '.join(key.choices)}")
    return text
