# SPDX-License-Identifier: MIT
"""Schemas of documents, declared as values, and the first place where a document does not fit.

A kind is a type (str, bool, int, float for any finite number, dict, list) or one of the classes here.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Mapping

from mpnet.messages import shown

Kind = Any
_WORDS = {str: "a text", bool: "true or false", int: "a whole number", float: "a number", dict: "an object", list: "a list"}
_WHOLE = 1 << 63  # beyond it no column, index or size can be


@dataclass(frozen=True)
class Maybe:
    """The kind, or null."""

    kind: Kind


@dataclass(frozen=True)
class Text:
    """A text that a pattern matches as a whole; what: it is, for messages."""

    pattern: str
    what: str


@dataclass(frozen=True)
class Within:
    """A number from low to high."""

    low: float
    high: float


@dataclass(frozen=True)
class Many:
    """A list of one kind, with at least so many parts."""

    kind: Kind
    least: int = 0


@dataclass(frozen=True)
class Named:
    """An object of any names, with values of one kind."""

    kind: Kind


@dataclass(frozen=True)
class Fields:
    """An object with these fields. Further ones, which a newer mpnet may have written, are not looked at."""

    required: Mapping[str, Kind] = field(default_factory=dict)
    optional: Mapping[str, Kind] = field(default_factory=dict)


@dataclass(frozen=True)
class Count:
    """A whole number from 0 on, however large: a network of 120 layers has 2^120 assignments."""


def mismatch(value: object, kind: Kind, location: str) -> str | None:
    """Say what is wrong with a value, such as `precision.layers[3].index must be a whole number, not 'x'`; None: nothing."""
    if isinstance(kind, Maybe):
        return None if value is None else mismatch(value, kind.kind, location)
    if isinstance(kind, Text):
        fits = isinstance(value, str) and re.fullmatch(kind.pattern, value) is not None
        return None if fits else f"{location} must be {kind.what}, not {shown(value)}"
    if isinstance(kind, Count):
        fits = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        return None if fits else f"{location} must be a whole number from 0 on, not {shown(value)}"
    if isinstance(kind, Within):
        fits = isinstance(value, (int, float)) and _is(value, float) and kind.low <= value <= kind.high
        return None if fits else f"{location} must be a number from {kind.low:g} to {kind.high:g}, not {shown(value)}"
    parts: list[tuple[str, object, Kind]] = []
    if isinstance(kind, Many) and isinstance(value, list) and len(value) >= kind.least:
        parts = [(f"{location}[{number}]", part, kind.kind) for number, part in enumerate(value)]
    elif isinstance(kind, Named) and isinstance(value, dict):
        parts = [(f"{location}.{shown(name)[1:-1]}", part, kind.kind) for name, part in value.items()]
    elif isinstance(kind, Fields) and isinstance(value, dict):
        for name in kind.required:
            if name not in value:
                return f"{location}.{name} is missing"
        both = {**kind.optional, **kind.required}
        parts = [(f"{location}.{name}", value[name], part) for name, part in both.items() if name in value]
    elif not _is(value, kind):
        word = _WORDS[kind if isinstance(kind, type) else list if isinstance(kind, Many) else dict]
        return f"{location} must be {word}, not {shown(value)}"
    return next(filter(None, (mismatch(part, inner, where) for where, part, inner in parts)), None)


def _is(value: object, kind: Kind) -> bool:
    if kind is float:
        return not isinstance(value, bool) and isinstance(value, (int, float)) and abs(value) < 1e300 and math.isfinite(value)
    if kind is int:
        return not isinstance(value, bool) and isinstance(value, int) and -_WHOLE <= value < _WHOLE
    return isinstance(kind, type) and isinstance(value, kind)
