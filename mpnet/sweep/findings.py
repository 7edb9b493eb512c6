"""What a sweep found, as the document that --json prints and the store keeps for reports."""

from __future__ import annotations

from typing import Any, Mapping

from mpnet.spec.measures import HELD_OUT, trial_costs, trial_metrics
from mpnet.sweep.front import Gap, front_gap
from mpnet.sweep.loop import SweepState
from mpnet.sweep.problem import Problem
from mpnet.sweep.space import Configuration
from mpnet.sweep.store import Trial, TrialStore

FORMAT = "mpnet-sweep-result"
VERSION = 1


def front_of(problem: Problem, known: Mapping[Configuration, Trial]) -> list[Configuration]:
    """The configurations that no other one dominates, the best first by the first objective."""
    configurations = list(known)
    return [configurations[i] for i in problem.front(list(known.values()))]


def baseline_of(problem: Problem, known: Mapping[Configuration, Trial]) -> Trial | None:
    """The trial with everything as high as it may be."""
    return known.get(Configuration(problem.baseline))


def exact_gap(problem: Problem, store: TrialStore, contexts: tuple[int, ...],
              known: Mapping[Configuration, Trial]) -> Gap | None:
    """How far the front of what a strategy tried is from the exact one; None until the store has the whole space."""
    everything: list[Trial] = []
    for context in contexts:
        if store.count(context) < problem.space.size // len(contexts):
            return None
        everything += [trial for trial in store.trials(context) if trial.key in problem.space]
    if len(everything) < problem.space.size:
        return None
    pairs = [problem.pairs(trials) for trials in (list(known.values()), everything)]
    return front_gap(*pairs)


def trial_entry(
    problem: Problem, configuration: Configuration, trial: Trial, digest: str, baseline: bool
) -> dict[str, Any]:
    """One configuration of a document."""
    held_out = {name: trial.values[HELD_OUT + name] for name in trial_metrics() if HELD_OUT + name in trial.values}
    return {
        "precision": configuration.key,
        "trial": digest,
        "baseline": baseline,
        "options": problem.space.option_sets[configuration.options].text,
        "metrics": {name: trial.values[name] for name in trial_metrics() if name in trial.values},
        **({"held_out": held_out} if held_out else {}),
        "costs": {name: trial.values[name] for name in trial_costs() if name in trial.values},
    }


def findings(
    problem: Problem, state: SweepState, store: TrialStore, contexts: tuple[int, ...], *, name: str,
    strategy: str, macs_per_pass: int, images: int, selecting: int, theory: float,
) -> dict[str, Any]:
    """The document of a sweep.

    macs_per_pass: of one forward pass of one picture; images: all pictures; selecting: those that select;
    theory: forward passes for one picture that one uninterrupted walk through the space needs.
    """
    known = state.known
    baseline = baseline_of(problem, known)
    front = front_of(problem, known)

    def entry(configuration: Configuration) -> dict[str, Any]:
        digest = store.trial_digest(contexts[configuration.options], configuration.key)
        return trial_entry(problem, configuration, known[configuration], digest,
                           configuration == Configuration(problem.baseline))

    best = None
    if baseline is not None and known:
        chosen = problem.best(known.values(), baseline)
        best = next((c for c, trial in known.items() if trial is chosen), None)
    gap = exact_gap(problem, store, contexts, known)
    work = store.work()
    passes = macs_per_pass * images
    return {
        "format": FORMAT, "version": VERSION, "name": name, "strategy": strategy,
        "state": "stopped" if state.stopped else "finished", "stopped": state.stopped,
        "trials": len(known), "computed": state.computed, "space": problem.space.size,
        "forward_equivalents": state.macs / passes, "forward_equivalents_theory": theory,
        "forward_equivalents_store": work.macs / passes, "images": images, "seconds": state.seconds,
        "seconds_store": work.seconds,
        "objectives": [o.name for o in problem.objectives],
        "holdout": {"selecting": selecting, "held_out": images - selecting},
        "precisions": list(problem.space.precisions),
        "baseline": entry(Configuration(problem.baseline)) if baseline is not None else None,
        "best": entry(best) if best is not None else None,
        "front": [entry(configuration) for configuration in front],
        "gap": None if gap is None else vars(gap),
        "store": str(store.path),
    }
