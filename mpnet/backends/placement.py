# SPDX-License-Identifier: MIT
"""The placement of layers in a target, asked of the program that runs it: for `mpnet export` and runs in other engines."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Sequence

from mpnet.backends import Executed
from mpnet.export import Configuration, Exported
from mpnet.model.precision import PRECISIONS


@dataclass(frozen=True)
class LayerPlacement:
    """One layer. asked, written, executed: words of precisions, '' where nobody knows. why: what to know about it."""

    index: int
    name: str
    asked: str
    written: str
    executed: str = ""
    why: str = ""

    @property
    def falls_back(self) -> bool:
        """Return whether a precision other than the wanted one is written or runs."""
        base = PRECISIONS[self.asked].base if self.asked in PRECISIONS else self.asked
        return any(other and other not in (base, self.asked) for other in (self.written, self.executed))


def placements(configuration: Configuration, exported: Exported, executed: Executed | None) -> list[LayerPlacement]:
    """Return every layer that has a precision of its own, or that somebody says something of."""
    plan, network = configuration.precisions, configuration.network
    listed = {*plan.weighted, *plan.keyed, *exported.layers, *(executed or {})}
    result = []
    for index in sorted(index for index in listed if 0 <= index < len(network.layers)):
        asked, written, why = exported.layers.get(index, (plan[index].name, plan[index].base, ""))
        runs, where = (executed or {}).get(index, ("", ""))
        remark = "; ".join(text for text in (why, where) if text)
        result.append(LayerPlacement(index, network.layers[index].name, asked, written, runs, remark))
    return result


NAMED = 4
"""Layers that a warning names."""


def warnings_of(layers: Sequence[LayerPlacement], engine: str = "") -> list[str]:
    """Return one line for all layers that fall back in one way, for one reason."""
    groups: dict[tuple[str, str, str, str], list[LayerPlacement]] = {}
    for layer in layers:
        if layer.falls_back:
            written = "" if layer.executed else layer.written
            groups.setdefault((layer.asked, layer.executed, written, layer.why), []).append(layer)
    lines = []
    for (asked, executed, written, why), (first, *others) in groups.items():
        named_layers = (first, *others)[:NAMED]
        names = ", ".join(layer.name for layer in named_layers) + (" and others" if len(others) >= NAMED else "")
        layers_text = f"{1 + len(others)} layers ({names}) are wanted in {asked} but"
        text = layers_text if others else f"layer {first.index} ({first.name}) is wanted in {asked} but"
        verb = ("run in" if others else "runs in") if executed else ("are" if others else "is") + " written in"
        where = f" in {engine}" if engine and executed else ""
        lines.append(f"{text} {verb} {executed or written}{where}{f': {why}' if why else ''}")
    return lines


def as_plain(layers: Sequence[LayerPlacement]) -> list[dict[str, object]]:
    """Return the layers as plain values."""
    return [{**asdict(layer), "falls_back": layer.falls_back} for layer in layers]
