"""Which layers pay for a lower precision, both ways, from configurations that a sweep measured."""

from __future__ import annotations

from typing import Any, Mapping

from mpnet.spec.measures import trial_metrics
from mpnet.spec.network import NetworkSpec
from mpnet.spec.precision import BY_CODE
from mpnet.sweep.problem import Problem
from mpnet.sweep.space import Configuration
from mpnet.sweep.store import Trial

Changes = dict[str, float]


def rank_layers(
    problem: Problem, known: Mapping[Configuration, Trial], network: NetworkSpec
) -> list[dict[str, Any]]:
    """One row per variable of the space and lower precision, most harm first; without those that were not measured.

    alone: change of every metric when only these layers are lowered, against everything at the highest precision.
    kept:  change when only these layers stay at the highest, against everything lowered; {} where not measured.
    """
    space = problem.space
    top = space.highest()
    rows = []
    for number, variable in enumerate(space.variables):
        high = top[variable.positions[0]]
        indices = [space.layers[position] for position in variable.positions]
        for code in variable.codes:
            if code == high:
                continue
            low = space.key_of([code if code in v.codes else top[v.positions[0]] for v in space.variables])
            alone = _change(known, space.changed(top, number, code), top)
            if alone:
                rows.append({
                    "layers": indices, "names": [network.layers[index].name for index in indices],
                    "precision": BY_CODE[code].name,
                    "mac_share": sum(problem.macs[p] for p in variable.positions) / max(1, sum(problem.macs)),
                    "alone": alone, "kept": _change(known, space.changed(low, number, high), low),
                })
    name = problem.quality_name
    return sorted(rows, key=lambda row: float(row["alone"].get(name, 0.0)))


def _change(known: Mapping[Configuration, Trial], key: str, start: str) -> Changes:
    after, before = known.get(Configuration(key)), known.get(Configuration(start))
    if after is None or before is None:
        return {}
    return {name: after.values[name] - before.values[name] for name in trial_metrics()
            if name in after.values and name in before.values}
