# SPDX-License-Identifier: MIT
"""What a target makes of each layer, asked of the program that runs it: for `mpnet export` and runs in other engines."""

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
        """Whether a precision other than the wanted one is written or runs."""
        base = PRECISIONS[self.asked].base if self.asked in PRECISIONS else self.asked
        return any(other and other not in (base, self.asked) for other in (self.written, self.executed))


def placements(configuration: Configuration, exported: Exported, executed: Executed | None) -> list[LayerPlacement]:
    """Every layer that has a precision of its own, or that somebody says something of."""
    plan, network = configuration.precisions, configuration.network
    listed = {*plan.weighted, *plan.keyed, *exported.layers, *(executed or {})}
    result = []
    for index in sorted(index for index in listed if 0 <= index < len(network.layers)):
        asked, written, why = exported.layers.get(index, (plan[index].name, plan[index].base, ""))
        runs, where = (executed or {}).get(index, ("", ""))
        remark = "; ".join(text for text in (why, where) if text)
        result.append(LayerPlacement(index, network.layers[index].name, asked, written, runs, remark))
    return result


def warnings_of(layers: Sequence[LayerPlacement], engine: str = "") -> list[str]:
    """One line for each layer that falls back."""
    lines = []
    for layer in layers:
        if layer.falls_back:
            engine_text = f" in {engine}" if engine else ""
            where = f"runs in {layer.executed}{engine_text}" if layer.executed else f"is written in {layer.written}"
            lines.append(
                f"layer {layer.index} ({layer.name}) is wanted in {layer.asked} but {where}"
                f"{f': {layer.why}' if layer.why else ''}"
            )
    return lines


def as_plain(layers: Sequence[LayerPlacement]) -> list[dict[str, object]]:
    """The layers as plain values."""
    return [{**asdict(layer), "falls_back": layer.falls_back} for layer in layers]
