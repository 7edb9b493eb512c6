# SPDX-License-Identifier: MIT
"""The precisions of a configuration as the `precision:` section of an experiment file, as short as selectors allow."""

from __future__ import annotations

from collections import Counter
from typing import Mapping, Sequence

from mpnet.config.experiment import PrecisionSection
from mpnet.engine.assign import PrecisionPlan
from mpnet.export import Configuration, Exported, Target
from mpnet.formats.documents.experiment_writer import format_flow, quote
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import FP32, PRECISIONS
from mpnet.model.selectors import layer_groups


def precision_section(network: NetworkSpec, plan: PrecisionPlan) -> PrecisionSection:
    """Return what an experiment file of this network says to get these precisions, over what the cfg declares.

    The default is what most layers have; the others are named by groups (`first`, `heads`), ranges and numbers.
    """
    default = Counter(plan[index].name for index in plan.weighted).most_common(1)
    name = default[0][0] if default else FP32.name
    layers_by_precision: dict[str, list[int]] = {}
    for index in (*plan.weighted, *plan.keyed):
        keys = network.layers[index].declared
        declared = None if keys is None else keys.precision
        if declared is None and network.layers[index].has_weights:
            declared = PRECISIONS[name]
        if declared is not plan[index]:
            layers_by_precision.setdefault(plan[index].name, []).append(index)
    weighted = list(plan.weighted)
    return PrecisionSection(
        name, tuple((selector(network, weighted, layers), precision) for precision, layers in layers_by_precision.items())
    )


def selector(network: NetworkSpec, weighted: Sequence[int], layers: Sequence[int]) -> str:
    """Return the shortest selector found that chooses exactly these layers. weighted: indices of all layers with weights."""
    remaining = set(layers)
    named_parts: list[tuple[int, str]] = []
    groups = {name: set(members) for name, members in layer_groups(network).items() if name != "conv"}
    while remaining:
        fitting = [
            (len(members & remaining), name)
            for name, members in groups.items()
            if members <= set(layers) and members & remaining
        ]
        # The first of the largest: a group that takes one layer only says more than its number where it is `first`, `last`.
        count, name = max(fitting, key=lambda pair: pair[0], default=(0, ""))
        if count < 2 and name not in ("first", "last"):
            break
        named_parts.append((min(groups[name]), name))
        remaining -= groups[name]
    named_parts += _ranges(weighted, sorted(remaining))
    return ", ".join(text for _, text in sorted(named_parts))


def _ranges(weighted: Sequence[int], layers: Sequence[int]) -> list[tuple[int, str]]:
    """Return the numbers, and ranges for three and more neighbours among the layers with weights."""
    rank = {index: number for number, index in enumerate(weighted)}
    texts: list[tuple[int, str]] = []
    neighbours: list[int] = []
    for index in [*layers, None]:
        if neighbours and index in rank and neighbours[-1] in rank and rank[index] == rank[neighbours[-1]] + 1:
            neighbours.append(index)
            continue
        texts += (
            [(neighbours[0], f"{neighbours[0]}..{neighbours[-1]}")]
            if len(neighbours) > 2
            else [(number, str(number)) for number in neighbours]
        )
        neighbours = [] if index is None else [index]
    return texts


def _write(configuration: Configuration, flavour: str, options: Mapping[str, object]) -> Exported:
    section = precision_section(configuration.network, configuration.precisions)
    layers = {quote(name) if "," in name else name: precision for name, precision in section.layers}
    text = f"precision:  # {configuration.precisions.key}\n  default: {section.default}\n"
    text += f"  layers: {format_flow(layers)}\n" if layers else ""
    for point in configuration.operating_point.values():
        text += f"detection: {format_flow({'deployed': format(point['score'], 'g')})}\n"
    return Exported({".yaml": text.encode()})


TARGET = Target("the precision section of an experiment file", ".yaml", _write, precisions=None, reads_weights=False)
