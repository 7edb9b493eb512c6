# SPDX-License-Identifier: MIT
"""The precisions of a configuration as the `precision:` section of an experiment file, as short as selectors allow."""

from __future__ import annotations

from collections import Counter
from typing import Any, Mapping, Sequence

from mpnet.config.experiment import PrecisionSection
from mpnet.engine.assign import PrecisionPlan
from mpnet.export import Configuration, Exported, Target
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import FP32, PRECISIONS
from mpnet.model.selectors import layer_groups


def precision_section(network: NetworkSpec, plan: PrecisionPlan) -> PrecisionSection:
    """What an experiment file of this network says to get these precisions, over what the cfg declares.

    The default is what most layers have; the others are named by groups (`first`, `heads`), ranges and numbers.
    """
    default = Counter(plan[index].name for index in plan.weighted).most_common(1)
    name = default[0][0] if default else FP32.name
    wanted: dict[str, list[int]] = {}
    for index in (*plan.weighted, *plan.keyed):
        keys = network.layers[index].declared
        declared = None if keys is None else keys.precision
        if declared is None and network.layers[index].has_weights:
            declared = PRECISIONS[name]
        if declared is not plan[index]:
            wanted.setdefault(plan[index].name, []).append(index)
    weighted = list(plan.weighted)
    return PrecisionSection(
        name, tuple((selector(network, weighted, layers), precision) for precision, layers in wanted.items())
    )


def selector(network: NetworkSpec, weighted: Sequence[int], layers: Sequence[int]) -> str:
    """The shortest selector found that chooses exactly these layers. weighted: indices of all layers with weights."""
    left = set(layers)
    parts: list[tuple[int, str]] = []
    groups = {name: set(of) for name, of in layer_groups(network).items() if name != "conv"}
    while left:
        fitting = [(len(of & left), name) for name, of in groups.items() if of <= set(layers) and of & left]
        # The first of the largest: a group that takes one layer only says more than its number where it is `first`, `last`.
        count, name = max(fitting, key=lambda pair: pair[0], default=(0, ""))
        if count < 2 and name not in ("first", "last"):
            break
        parts.append((min(groups[name]), name))
        left -= groups[name]
    parts += _ranges(weighted, sorted(left))
    return ", ".join(text for _, text in sorted(parts))


def _ranges(weighted: Sequence[int], layers: Sequence[int]) -> list[tuple[int, str]]:
    """Numbers, and ranges for three and more neighbours among the layers with weights."""
    rank = {index: number for number, index in enumerate(weighted)}
    parts: list[tuple[int, str]] = []
    run: list[int] = []
    for index in [*layers, None]:
        if run and index in rank and run[-1] in rank and rank[index] == rank[run[-1]] + 1:
            run.append(index)
            continue
        parts += [(run[0], f"{run[0]}..{run[-1]}")] if len(run) > 2 else [(number, str(number)) for number in run]
        run = [] if index is None else [index]
    return parts


def _write(configuration: Configuration, flavour: str, options: Mapping[str, Any]) -> Exported:
    section = precision_section(configuration.network, configuration.precisions)
    layers = ", ".join(f'"{name}": {of}' if "," in name else f"{name}: {of}" for name, of in section.layers)
    text = f"precision:  # {configuration.precisions.key}\n  default: {section.default}\n"
    text += f"  layers: {{{layers}}}\n" if layers else ""
    text += "".join(f"detection: {{deployed: {point['score']:g}}}\n" for point in configuration.operating_point.values())
    return Exported({".yaml": text.encode()})


TARGET = Target("the precision section of an experiment file", ".yaml", _write, precisions=None, reads_weights=False)
