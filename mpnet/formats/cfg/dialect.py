# SPDX-License-Identifier: MIT
"""Whose ways a cfg follows where the two Darknet programs differ, told by what only one of them can run."""

from __future__ import annotations

from typing import Sequence

from mpnet.formats.cfg.layers import ALIASES
from mpnet.formats.cfg.position import ALEXEYAB_ACTIVATIONS
from mpnet.formats.cfg.tokens import CfgSection

_SECTIONS = frozenset(
    ("scale_channels", "sam", "Gaussian_yolo", "reorg3d", "local_avgpool", "contrastive", "empty", "implicit")
)
# Keys of a section that the original program does not know -> the value that changes nothing.
_KEYS: dict[str, dict[str, str]] = {
    "convolutional": {"dilation": "1", "antialiasing": "0", "share_index": "-1000000000", "flipped": "0", "cbn": "0"},
    "maxpool": {"maxpool_depth": "0", "antialiasing": "0"},
    "route": {"groups": "1"},
    "shortcut": {"weights_type": "none"},
    "yolo": {"new_coords": "0", "scale_x_y": "1"},
}


def dialect_of(sections: Sequence[CfgSection]) -> tuple[str, str]:
    """(dialect, why): alexeyab where a section uses what only that program has, else darknet."""
    for section in sections:
        kind = ALIASES.get(section.name, section.name)
        values = {key: entry.value for key, entry in section.entries.items()}
        found = ""
        if kind in _SECTIONS:
            found = f"[{section.name}]"
        elif values.get("activation") in ALEXEYAB_ACTIVATIONS:
            found = f"activation={values['activation']}"
        elif kind == "shortcut" and "," in values.get("from", "").rstrip(","):
            found = f"from={values['from']}"
        elif any(values.get(key, values.get("stride", "1")) != values.get("stride", "1") for key in ("stride_x", "stride_y")):
            found = "different strides per axis"
        else:
            odd = [key for key, usual in _KEYS.get(kind, {}).items() if not _same(values.get(key, usual), usual)]
            found = f"{odd[0]}={values[odd[0]]}" if odd else ""
        if found:
            return "alexeyab", f"only AlexeyAB's program has {found}, line {section.line}"
    return "darknet", "nothing in it needs AlexeyAB's program"


def _same(value: str, usual: str) -> bool:
    try:
        return float(value) == float(usual)
    except ValueError:
        return value == usual
