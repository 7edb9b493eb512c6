# SPDX-License-Identifier: MIT
"""Colours of precisions, one row for each that is a base: of the terminal, of figures, of the page in light and dark."""

from __future__ import annotations

from typing import NamedTuple


class Shades(NamedTuple):
    """background and text of a label; mark and light: a strong and a pale one, of figures. As #rrggbb."""

    background: str
    text: str
    mark: str
    light: str


class Colour(NamedTuple):
    """One precision's: a style of the terminal, shades on white and on dark pages."""

    terminal: str
    on_white: Shades
    on_dark: Shades


COLOURS: dict[str, Colour] = {
    "fp32": Colour(
        "blue", Shades("#cfe2f6", "#0b3b66", "#4a8fd0", "#a5c9ea"), Shades("#143a5c", "#c8e3ff", "#5da2e4", "#2e5a85")
    ),
    "fp16": Colour(
        "yellow", Shades("#fde2ad", "#5a3900", "#dd9412", "#f3cf8d"), Shades("#553a05", "#ffe0a3", "#e0a030", "#7d5a1b")
    ),
    "bf16": Colour(
        "magenta", Shades("#e6dbf5", "#3f2470", "#8a63c4", "#cdbce6"), Shades("#3d2a5e", "#e2d4fa", "#a585dd", "#5b4385")
    ),
    "int16": Colour(
        "cyan", Shades("#c5e8ee", "#0a4650", "#1f93a6", "#9ad2dc"), Shades("#0f4651", "#b8edf6", "#3fb2c6", "#236270")
    ),
    "int8": Colour(
        "green", Shades("#c3ebda", "#054a35", "#179a70", "#93d4bc"), Shades("#0d4a37", "#b2f2d9", "#35b98b", "#1d6b52")
    ),
}


def style_sheet() -> str:
    """Return CSS: the shades as variables, such as --int8-bg and --int8-light, and the chips that have them."""

    def variables(dark: bool) -> str:
        rows = {name: colour.on_dark if dark else colour.on_white for name, colour in COLOURS.items()}
        return "\n".join(
            f"  --{name}-bg: {row.background}; --{name}-text: {row.text}; --{name}: {row.mark}; --{name}-light: {row.light};"
            for name, row in rows.items()
        )

    chips = "\n".join(f".chip.{name} {{ background: var(--{name}-bg); color: var(--{name}-text); }}" for name in COLOURS)
    return f':root {{\n{variables(False)}\n}}\n:root[data-theme="dark"] {{\n{variables(True)}\n}}\n{chips}\n'
