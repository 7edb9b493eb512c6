# SPDX-License-Identifier: MIT
"""Whose ways a cfg follows where the two Darknet programs differ, told by what only one of them can run."""

from __future__ import annotations

from typing import Sequence

from mpnet.formats.cfg.layers import ALIASES, READERS
from mpnet.formats.cfg.position import ALEXEYAB_ACTIVATIONS
from mpnet.formats.cfg.tokens import CfgSection


def dialect_of(sections: Sequence[CfgSection]) -> tuple[str, str]:
    """Return (dialect, why): alexeyab where a section uses what only that program has, else darknet."""
    for section in sections:
        kind = ALIASES.get(section.name, section.name)
        values = {key: entry.value for key, entry in section.entries.items()}
        reader, special = READERS.get(kind), ""
        if reader is not None and reader.alexeyab:
            special = f"[{section.name}]"
        elif values.get("activation") in ALEXEYAB_ACTIVATIONS:
            special = f"activation={values['activation']}"
        elif kind == "shortcut" and "," in values.get("from", "").rstrip(","):
            special = f"from={values['from']}"
        elif any(values.get(key, values.get("stride", "1")) != values.get("stride", "1") for key in ("stride_x", "stride_y")):
            special = "different strides per axis"
        elif reader is not None:
            odd = [key for key, usual in reader.alexeyab_keys.items() if not _same(values.get(key, usual), usual)]
            special = f"{odd[0]}={values[odd[0]]}" if odd else ""
        if special:
            return "alexeyab", f"only AlexeyAB's program has {special}, line {section.line}"
    return "darknet", "nothing in it needs AlexeyAB's program"


def _same(value: str, usual: str) -> bool:
    try:
        return float(value) == float(usual)
    except ValueError:
        return value == usual
