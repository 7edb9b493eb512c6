# SPDX-License-Identifier: MIT
"""Tables of a network's layers, for the terminal: what they are, and where they run in an exported file's engine."""

from __future__ import annotations

from typing import Callable, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from mpnet.backends.placement import LayerPlacement
from mpnet.messages import bytes_text, count_text, counted
from mpnet.model.network import ConvolutionSpec, LayerSpec, MaxpoolSpec, UpsampleSpec
from mpnet.model.plan_key import short_key
from mpnet.model.precision import PRECISIONS
from mpnet.report.data.shown_network import ShownLayer, ShownNetwork
from mpnet.report.data.words import clean, shape_text
from mpnet.report.text.terminal import STYLES, print_table


def describe_layer(layer: LayerSpec) -> str:
    """Return kernel size, stride, activation and groups in a few characters."""
    if isinstance(layer, ConvolutionSpec):
        groups = f" groups {layer.groups}" if layer.groups > 1 else ""
        return f"{layer.size}x{layer.size}/{layer.stride} {layer.activation}{groups}"
    if isinstance(layer, MaxpoolSpec):
        return f"{layer.size}x{layer.size}/{layer.stride}"
    return f"x{layer.factor}" if isinstance(layer, UpsampleSpec) else ""


# (heading, right-aligned, cell of a row), and which of them are there as far as there is room.
_COLUMNS: tuple[tuple[str, bool, Callable[[ShownLayer], Text | str]], ...] = (
    ("#", True, lambda row: str(row.index)),
    ("layer", False, lambda row: row.type.replace("convolutional", "conv")),
    ("selectors", False, lambda row: " ".join(row.selectors[1:])),
    ("kernel", False, lambda row: row.detail),
    ("in", True, lambda row: shape_text(row.in_shape)),
    ("out", True, lambda row: shape_text(row.shape)),
    ("precision", False, lambda row: Text(row.precision, STYLES.get(PRECISIONS[row.precision].base, ""))),
    ("conversions", False, lambda row: ", ".join(row.conversions)),
    ("runs in", False, lambda row: row.backend or ""),
    ("MACs", True, lambda row: count_text(row.macs) if row.macs else ""),
    ("parameters", True, lambda row: f"{row.parameters:,}" if row.parameters else ""),
    ("weights", True, lambda row: bytes_text(row.weight_bytes) if row.weight_bytes else ""),
    ("activations", True, lambda row: bytes_text(row.activation_bytes)),
)
_OPTIONAL = ("conversions", "out", "weights", "kernel", "layer", "activations", "in", "parameters")


def print_layers(network: ShownNetwork, console: Console) -> None:
    """Print a network as a table with totals; columns for which there is no room are left out."""
    backends = any(row.backend is not None for row in network.layers)
    columns = [column for column in _COLUMNS if column[0] != "runs in" or backends]
    names = [name for name, _, _ in columns]
    print_table(
        console,
        names,
        [[cell(row) for _, _, cell in columns] for row in network.layers],
        left=[number for number, (_, is_right_aligned, _) in enumerate(columns) if not is_right_aligned],
        optional=[names.index(name) for name in _OPTIONAL],
        fold=[names.index("selectors"), names.index("conversions")],
    )
    totals = network.totals
    share = 100 * totals["int8_macs"] / totals["macs"] if totals["macs"] else 0
    dialect = network.dialect
    console.print(f"dialect {dialect.name} ({dialect.why}), batch norm {dialect.batch_norm}")
    console.print(
        f"{len(network.layers)} layers, precision {short_key(network.precision_key)}; {totals['conversions']} "
        "conversions\n"
        f"{count_text(totals['macs'])} MACs ({share:.1f} % in int8), {totals['parameters']:,} parameters, "
        f"{count_text(totals['bit_operations'])} bit operations\n"
        f"{bytes_text(totals['weight_bytes'])} of weights{_scales_text(network)}, "
        f"{bytes_text(totals['peak_activation_bytes'])} of activations at the peak, for one image"
    )


def _scales_text(network: ShownNetwork) -> str:
    """Say where weights in codes have one scale a tensor: each channel with its own takes more bytes."""
    if not network.per_tensor_layers:
        return ""
    some = network.per_tensor_layers < network.coded_layers
    return " (scales per tensor" + (f" in {counted(network.per_tensor_layers, 'layer')}" if some else "") + ")"


def print_placements(layers: Sequence[LayerPlacement], engine: Mapping[str, str] | None, console: Console) -> None:
    """Print where layers run as a table. engine: name and version of the program that was asked."""
    runs = f"{engine['engine']} {engine['version']} runs" if engine else "runs"
    rows = [
        [
            Text(clean(cell), style="bold red" if layer.falls_back else "")
            for cell in (str(layer.index), layer.name, layer.asked, layer.written, layer.executed or "-", layer.why)
        ]
        for layer in layers
    ]
    print_table(console, ("#", "layer", "asked", "written", runs, ""), rows, left=range(1, 6), keys=2)
