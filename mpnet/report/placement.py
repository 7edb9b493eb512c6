# SPDX-License-Identifier: MIT
"""The fate of layers in a target, for the terminal."""

from __future__ import annotations

from typing import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from mpnet.backends.placement import LayerPlacement
from mpnet.report.terminal import clean, print_table


def print_placements(layers: Sequence[LayerPlacement], engine: Mapping[str, str] | None, console: Console) -> None:
    """The layers as a table. engine: name and version of the program that was asked."""
    runs = f"{engine['engine']} {engine['version']} runs" if engine else "runs"
    rows = [
        [
            Text(clean(cell), style="bold red" if layer.falls_back else "")
            for cell in (str(layer.index), layer.name, layer.asked, layer.written, layer.executed or "-", layer.why)
        ]
        for layer in layers
    ]
    print_table(console, ("#", "layer", "asked", "written", runs, ""), rows, left=range(1, 6), keys=2)
