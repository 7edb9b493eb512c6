# SPDX-License-Identifier: MIT
"""Causes of errors that lie elsewhere than where they show: a misspelt key, a size of the image that strides do not divide."""

from __future__ import annotations

from typing import Callable, Sequence

from mpnet.formats.cfg.keys import TRAINING_ANYWHERE
from mpnet.formats.cfg.layers import ALIASES, READERS
from mpnet.formats.cfg.tokens import CfgSection, Entry, shorten

_STRIDES = (2, 4, 8, 16, 32, 64, 128, 256)


def nearest_key(section: CfgSection, key: str) -> str | None:
    """Return the key that a section was asked for and does not have, and that is spelt almost as an unknown key."""
    candidates = sorted(section.asked - section.entries.keys())
    equal = [candidate for candidate in candidates if candidate.lower() == key.lower()]
    if equal:
        return equal[0]
    import difflib  # for mistakes only

    return next(iter(difflib.get_close_matches(key.lower(), candidates, n=1, cutoff=0.8)), None)


def describe_unknown(section: CfgSection, key: str, entry: Entry) -> str:
    """Return what is said of a key that nothing reads."""
    text = f"{section.source}:{entry.line}: unknown key {shorten(key)!r} in [{shorten(section.name)}] is ignored"
    nearest = nearest_key(section, key)
    return text if nearest is None else f"{text}; did you mean {nearest!r}?"


def find_misspelt(sections: Sequence[CfgSection]) -> str | None:
    """Return what is said of the first unknown key that is spelt almost as one that its section was asked for."""
    for section in sections:
        reader = READERS.get(ALIASES.get(section.name, section.name))
        training = f"{TRAINING_ANYWHERE} {reader.training if reader else ''}".split()
        for key, entry in section.entries.items():
            if not entry.used and key not in training and nearest_key(section, key) is not None:
                return describe_unknown(section, key, entry)
    return None


def suggest_size(width: int, height: int, is_fitting: Callable[[int, int], bool]) -> str | None:
    """Return by what width and height must be divisible, in a sentence; None where their multiples do not help.

    is_fitting: whether the layers fit together with another width and height.
    """
    for stride in _STRIDES:
        below, above = ([_round(side, stride, up) for side in (width, height)] for up in (False, True))
        if below != [width, height] and all(0 not in sides and is_fitting(*sides) for sides in (below, above)):
            remedies = [
                f"{name}={side} is no multiple of {stride}: set {name}={lower} or {name}={upper}"
                for name, side, lower, upper in zip(("width", "height"), (width, height), below, above, strict=True)
                if lower != side
            ]
            return f"the strides up to here ask for multiples of {stride}, and {'; '.join(remedies)}"
    return None


def _round(side: int, stride: int, up: bool) -> int:
    """Return the next multiple of a stride, the side itself where it is one."""
    return side if side % stride == 0 else side // stride * stride + (stride if up else 0)
