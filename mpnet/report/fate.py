"""The fate of layers in a target, for the terminal."""

from __future__ import annotations

from typing import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from mpnet.backends.fate import LayerFate


def print_fates(layers: Sequence[LayerFate], engine: Mapping[str, str] | None, console: Console) -> None:
    """The layers as a table. engine: name and version of the program that was asked."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    runs = f"{engine['engine']} {engine['version']} runs" if engine else "runs"
    for name in ("#", "layer", "asked", "written", runs, ""):
        table.add_column(name, justify="right" if name == "#" else "left", no_wrap=True)
    for layer in layers:
        table.add_row(str(layer.index), layer.name, layer.asked, layer.written, layer.executed or "-", layer.why,
                      style="bold red" if layer.falls_back else "")
    console.print(table)
