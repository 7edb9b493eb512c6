"""The table of a network's layers, for the terminal."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mpnet.messages import bytes_text, count_text
from mpnet.report.terminal import STYLES
from mpnet.spec.network import ConvolutionSpec, LayerSpec, MaxpoolSpec, UpsampleSpec
from mpnet.spec.precision import PRECISIONS


def shape_text(shape: list[int]) -> str:
    """(height, width, channels) as Darknet writes it: width x height x channels."""
    height, width, channels = shape
    return f"{width}x{height}x{channels}"


def describe_layer(layer: LayerSpec) -> str:
    """Kernel size, stride, activation and groups in a few characters."""
    if isinstance(layer, ConvolutionSpec):
        groups = f" groups {layer.groups}" if layer.groups > 1 else ""
        return f"{layer.size}x{layer.size}/{layer.stride} {layer.activation}{groups}"
    if isinstance(layer, MaxpoolSpec):
        return f"{layer.size}x{layer.size}/{layer.stride}"
    return f"x{layer.factor}" if isinstance(layer, UpsampleSpec) else ""


# (heading, right-aligned, terminal width from which it is shown, cell of a row)
_COLUMNS: tuple[tuple[str, bool, int, Callable[[Mapping[str, Any]], Text | str]], ...] = (
    ("#", True, 0, lambda row: str(row["index"])),
    ("layer", False, 0, lambda row: row["type"].replace("convolutional", "conv")),
    ("selectors", False, 0, lambda row: " ".join(row["selectors"][1:])),
    ("kernel", False, 140, lambda row: row["detail"]),
    ("in", True, 170, lambda row: shape_text(row["in_shape"])),
    ("out", True, 0, lambda row: shape_text(row["shape"])),
    ("precision", False, 0, lambda row: Text(row["precision"], STYLES.get(PRECISIONS[row["precision"]].base, ""))),
    ("conversions", False, 0, lambda row: ", ".join(row["conversions"])),
    ("MACs", True, 0, lambda row: count_text(row["macs"]) if row["macs"] else ""),
    ("parameters", True, 110, lambda row: f"{row['parameters']:,}" if row["parameters"] else ""),
    ("weights", True, 100, lambda row: bytes_text(row["weight_bytes"]) if row["weight_bytes"] else ""),
    ("activations", True, 120, lambda row: bytes_text(row["activation_bytes"])),
)


def print_layers(document: Mapping[str, Any], console: Console) -> None:
    """The document of `mpnet show` as a table with totals."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = [column for column in _COLUMNS if column[2] <= console.width]
    if any("backend" in row for row in document["layers"]):
        columns.append(("runs in", False, 0, lambda row: row["backend"]))
    for name, right, _, _ in columns:
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "selectors")
    for row in document["layers"]:
        table.add_row(*[cell(row) for _, _, _, cell in columns])
    console.print(table)
    totals = document["totals"]
    share = 100 * totals["int8_macs"] / totals["macs"] if totals["macs"] else 0
    dialect = document["dialect"]
    console.print(f"dialect {dialect['name']} ({dialect['why']}), batch norm {dialect['batch_norm']}")
    console.print(
        f"{len(document['layers'])} layers, precision {document['precision_key']}; {totals['conversions']} "
        "conversions\n"
        f"{count_text(totals['macs'])} MACs ({share:.1f} % in int8), {totals['parameters']:,} parameters, "
        f"{count_text(totals['bit_operations'])} bit operations\n"
        f"{bytes_text(totals['weight_bytes'])} of weights, {bytes_text(totals['peak_activation_bytes'])} of "
        "activations at the peak, for one picture"
    )
