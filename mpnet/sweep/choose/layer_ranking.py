# SPDX-License-Identifier: MIT
"""The ranking of layers: by what lowering each of them changes where that was measured, and by the noise that was screened."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from mpnet.config.measures import trial_metrics
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import BY_CODE
from mpnet.sweep.layer_ranks import LayerNoise, LayerRank
from mpnet.sweep.problem.problem import Problem
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.search.lowerings import SpaceLowerings
from mpnet.sweep.search.screening import ScreenedTrials
from mpnet.sweep.store import Trial, TrialStore
from mpnet.trial.lowering_order import LoweringSearch


def rank_layers(problem: Problem, trials: Mapping[Assignment, Trial], network: NetworkSpec) -> tuple[LayerRank, ...]:
    """Rank the variables of the space at each lower precision, most harm first, without those that were not measured."""
    space = problem.space
    top = space.highest()
    ranks = []
    for number, variable in enumerate(space.variables):
        high = top[variable.positions[0]]
        for code in variable.codes:
            if code == high:
                continue
            low = space.lowered(code)
            alone = _change(trials, space.changed(top, number, code), top)
            if alone:
                ranks.append(
                    LayerRank(
                        **_describe(problem, network, number),
                        precision=BY_CODE[code].name,
                        alone=alone,
                        kept=_change(trials, space.changed(low, number, high), low),
                    )
                )
    return tuple(sorted(ranks, key=lambda rank: float(rank.alone.get(problem.quality_name, 0.0))))


def _change(trials: Mapping[Assignment, Trial], key: str, reference_key: str) -> dict[str, float]:
    trial, reference = trials.get(Assignment(key)), trials.get(Assignment(reference_key))
    if trial is None or reference is None:
        return {}
    return {
        name: trial.values[name] - reference.values[name]
        for name in trial_metrics()
        if name in trial.values and name in reference.values
    }


def rank_by_noise(problem: Problem, store: TrialStore, contexts: Sequence[int], network: NetworkSpec) -> tuple[LayerNoise, ...]:
    """Rank the variables of the space at each lower precision by the noise that this step adds, most noise first.

    The chain of `deep` is walked again with what the store has of it, which runs nothing. () where nothing was screened.
    """
    search = _replay_chain(problem, store, contexts)
    start = search.measures.get((0,) * len(search.lowest))
    total_noise = sum(max(0.0, effect.noise) for effect in search.first_effects.values())
    rows = []
    for (variable, step), effect in sorted(search.first_effects.items()):
        rows.append(
            LayerNoise(
                **_describe(problem, network, variable),
                precision=BY_CODE[problem.space.falling_codes(variable)[step + 1]].name,
                noise=effect.noise,
                noise_percent=100 * effect.noise / total_noise if total_noise > 0 else 0.0,
                saved_percent=100 * effect.saving / start.cost if start is not None and start.cost > 0 else 0.0,
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.noise))


def _replay_chain(problem: Problem, store: TrialStore, contexts: Sequence[int]) -> LoweringSearch:
    """Return the search for the chain under the first option set, as far as the store has what was screened for it."""
    lowerings = SpaceLowerings(problem, 0)
    screened = ScreenedTrials(store, contexts, [o.name for o in problem.objectives if not o.higher])
    failed_keys = {trial.key for trial in store.failed_trials(contexts[0])}
    search = LoweringSearch(lowerings.lowest)
    walk = search.search_chain()
    try:
        requested = next(walk)
        while True:
            found = lowerings.collect(requested, screened.find(map(lowerings.configuration, requested)))
            if any(depths not in found and lowerings.configuration(depths).key not in failed_keys for depths in requested):
                break
            requested = walk.send(found)
    except StopIteration:
        pass
    return search


def _describe(problem: Problem, network: NetworkSpec, variable: int) -> dict[str, Any]:
    """Return which layers a variable has, and their share of the network's multiply-accumulates."""
    positions = problem.space.variables[variable].positions
    indices = tuple(problem.space.layers[position] for position in positions)
    return {
        "layers": indices,
        "names": tuple(network.layers[index].name for index in indices),
        "mac_share": sum(problem.macs[p] for p in positions) / max(1, sum(problem.macs)),
    }
