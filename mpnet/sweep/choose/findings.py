# SPDX-License-Identifier: MIT
"""What a sweep found, as the document that --json prints and the store keeps for reports; and how far it is."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any, Mapping, Sequence

from mpnet.config.measures import HELD_OUT, names_of, trial_costs, trial_metrics
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import BY_CODE
from mpnet.model.task import DETECTION, Task
from mpnet.sweep.choose.margins import Margins, margins_of
from mpnet.sweep.choose.picks import Judged, losses_as_json, pick
from mpnet.sweep.choose.safe import safety_json, shown_safe
from mpnet.sweep.choose.stability import stability
from mpnet.sweep.problem.front import Gap, front_gap
from mpnet.sweep.problem.known import KnownTrials
from mpnet.sweep.problem.problem import Problem
from mpnet.sweep.problem.space import Configuration, Space
from mpnet.sweep.search.loop import SweepState
from mpnet.sweep.store import Trial, TrialStore
from mpnet.sweep.store.owners import shown
from mpnet.sweep.store.records import choose_record, read_records

FORMAT = "mpnet-sweep-result"
VERSION = 1


def front_of(problem: Problem, known: Mapping[Configuration, Trial]) -> list[Configuration]:
    """The configurations that no other one dominates, the best first by the first objective."""
    configurations = list(known)
    return [configurations[i] for i in problem.front(list(known.values()))]


def everything_known(
    problem: Problem, store: TrialStore, contexts: tuple[int, ...], tried: Mapping[Configuration, Trial]
) -> Mapping[Configuration, Trial]:
    """All finished trials of the space under the sweep's options, whichever strategy tried them; `tried` first.

    A trial that lacks an objective (an older sweep measured less) is left out.
    """
    others = KnownTrials()
    for options, context in enumerate(contexts):
        if store.count(context) == sum(c.options == options for c in tried):
            continue
        for trial in store.trials(context):
            if trial.key in problem.space and not any(math.isnan(trial.get(o.name)) for o in problem.objectives):
                configuration = Configuration(trial.key, options)
                if configuration not in tried:
                    others.add(configuration, trial)
    return others.after(tried) if others else tried


def exact_gap(
    problem: Problem, tried: Mapping[Configuration, Trial], known: Mapping[Configuration, Trial], ruled_out: int = 0
) -> Gap | None:
    """How far the front of what a strategy tried is from the exact one; None until the whole space is known.

    ruled_out: how many configurations are not among the known ones and no part of the front for certain, or failed.
    """
    if len(known) + ruled_out < problem.space.size:
        return None
    return front_gap(problem.pairs(list(tried.values())), problem.pairs(list(known.values())))


def findings(
    problem: Problem,
    state: SweepState,
    store: TrialStore,
    contexts: tuple[int, ...],
    *,
    name: str,
    strategy: str,
    macs_per_pass: int,
    images: int,
    selecting: int,
    theory: float,
    judged: Judged,
    task: Task = DETECTION,
    margins: Margins | None = None,
    intervals_by: str = "",
) -> dict[str, Any]:
    """The document of a sweep.

    judged:        configurations against the baseline, see `picks`; intervals_by: where its intervals come from.
    margins:       most that the safe pick may lose, None: the task's own.
    macs_per_pass: of one forward pass of one image; images: all images; selecting: those that select;
    theory: forward passes for one image that one uninterrupted walk through the space needs.
    """
    known = everything_known(problem, store, contexts, state.known)
    baseline = known.get(Configuration(problem.baseline))
    front = front_of(problem, known)
    tried_front = front_of(problem, state.known)

    def entry(configuration: Configuration) -> dict[str, Any]:
        values = known[configuration].values
        held_out = {name: values[HELD_OUT + name] for name in trial_metrics() if HELD_OUT + name in values}
        return {
            "precision": configuration.key,
            "trial": store.trial_digest(contexts[configuration.options], configuration.key),
            "baseline": configuration == Configuration(problem.baseline),
            "tried": configuration in state.known,
            "options": problem.space.option_sets[configuration.options].text,
            "metrics": {name: values[name] for name in trial_metrics() if name in values},
            **({"held_out": held_out} if held_out else {}),
            "costs": {name: values[name] for name in trial_costs() if name in values},
        }

    def of(trial: Trial | None) -> dict[str, Any] | None:
        # Texts, since a value that is not a number equals nothing.
        return next((entry(c) for c in known if trial and c.key == trial.key and str(known[c]) == str(trial)), None)

    best = nearest = None
    if baseline is not None:
        best = of(problem.best(known.values(), baseline))
        if best is None:
            close = problem.nearest(known.values(), baseline)
            nearest = of(close)
            if nearest is not None and close is not None:
                nearest["beyond"] = {key: by for key, by in problem.excesses(close, baseline) if by > 0}
    safety = shown_safe(problem, known, judged, margins or margins_of(None, task), task, images, selecting)
    picked = pick(problem, known, safety.safe)
    judgements = judged(list(dict.fromkeys([*picked.values(), *(test.configuration for test in safety.tested)])))
    picks = {
        name: {
            **entry(c),
            "losses": losses_as_json(judgements.get(c), task),
            "saves": _saves(known[c], known.get(Configuration(problem.baseline))),
        }
        for name, c in picked.items()
    }
    chosen = "safe" if "safe" in picks and not problem.constraints.on_accuracy else None
    ruled_out = _ruled_out(problem, store, contexts, known)
    failed = failures(store, contexts, problem.space)
    gap = exact_gap(problem, state.known, known, ruled_out + sum(row["configurations"] for row in failed))
    work = store.work()
    passes = macs_per_pass * images
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": name,
        "strategy": strategy,
        "state": "stopped" if state.stopped else "finished",
        "stopped": state.stopped,
        "trials": len(state.known),
        "known": len(known),
        "ruled_out": ruled_out,
        "ruled_out_after": {str(n): count for n, count in store.ruled_out_after(contexts, problem.front_name).items()},
        "failed": failed,
        "computed": state.computed,
        "space": problem.space.size,
        "forward_equivalents": state.macs / passes,
        "forward_equivalents_theory": theory,
        "forward_equivalents_store": work.macs / passes,
        "images": images,
        "seconds": state.seconds,
        "seconds_store": work.seconds,
        "objectives": [o.name for o in problem.objectives],
        "holdout": {"selecting": selecting, "held_out": images - selecting},
        "precisions": list(problem.space.precisions),
        "baseline": entry(Configuration(problem.baseline)) if baseline is not None else None,
        "limits": {key: value for key, value in problem.constraints.as_json().items() if value is not None},
        "best": entry(picked[chosen]) if chosen else best,
        "picks": picks,
        "safety": safety_json(safety, [options.text for options in problem.space.option_sets]),
        "stability": stability(problem, known, {c: judgement.drawn for c, judgement in judgements.items()}, picked),
        "intervals_by": intervals_by,
        "nearest": nearest,
        "front": [entry(configuration) for configuration in front],
        "own_front": [configuration.key for configuration in tried_front],
        "gap": None if gap is None else gap.as_json(),
        "store": str(store.path),
    }


def failures(store: TrialStore, contexts: Sequence[int], space: Space | None = None) -> list[dict[str, Any]]:
    """The layers at which configurations failed, so that they have no figures: why the first one did, and how many of them.

    space: which ones count, None: all.
    """
    counts, reasons = Counter[int](), dict[int, str]()
    for context in contexts:
        for one in store.failed(context):
            if space is None or one.key in space:
                counts[one.layer] += 1
                reasons.setdefault(one.layer, one.reason)
    return [{"layer": layer, "reason": reasons[layer], "configurations": counts[layer]} for layer in sorted(counts)]


def _ruled_out(problem: Problem, store: TrialStore, contexts: tuple[int, ...], known: Mapping[Configuration, Trial]) -> int:
    """How many configurations the store knows to be no part of the front, beside those that are known."""
    return sum(
        Configuration(key, options) not in known and key in problem.space
        for options, context in enumerate(contexts)
        for key in store.all_ruled_out(context, problem.front_name)
    )


def _saves(trial: Trial, baseline: Trial | None) -> dict[str, float]:
    """Share of each of the baseline's costs that a trial saves, percent."""
    if baseline is None:
        return {}
    return {
        name: 100 * (1 - trial.values[name] / baseline.values[name])
        for name in names_of("cost", stored="trials")
        if trial.values.get(name) is not None and baseline.values.get(name)
    }


def rank_layers(problem: Problem, known: Mapping[Configuration, Trial], network: NetworkSpec) -> list[dict[str, Any]]:
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
            low = space.lowered(code)
            alone = _change(known, space.changed(top, number, code), top)
            if alone:
                rows.append(
                    {
                        "layers": indices,
                        "names": [network.layers[index].name for index in indices],
                        "precision": BY_CODE[code].name,
                        "mac_share": sum(problem.macs[p] for p in variable.positions) / max(1, sum(problem.macs)),
                        "alone": alone,
                        "kept": _change(known, space.changed(low, number, high), low),
                    }
                )
    name = problem.quality_name
    return sorted(rows, key=lambda row: float(row["alone"].get(name, 0.0)))


def _change(known: Mapping[Configuration, Trial], key: str, start: str) -> dict[str, float]:
    after, before = known.get(Configuration(key)), known.get(Configuration(start))
    if after is None or before is None:
        return {}
    return {
        name: after.values[name] - before.values[name]
        for name in trial_metrics()
        if name in after.values and name in before.values
    }


def sweep_status(path: Path, number: int | None = None) -> dict[str, Any]:
    """What `mpnet sweep --status` prints; reads only, also while the sweep runs.

    number: of a sweep of the store, None: the last one. state: finished, stopped (by its budget), running, or interrupted.
    trials: of this sweep; total: how many it asks for, None when that is not known; known: all that the store has for its
    options, whichever strategy tried them; ruled_out: what cannot be on this sweep's front; failed: see `failures`.
    findings: of its last end, or None. sweeps: all of the store.
    Raises: StoreError for a file that is no store, or a number that there is none of.
    """
    with TrialStore.read(path) as store:
        records = read_records(store)
        record = choose_record(store, number, records=records)
        status = store.document("status") if record is None or record.last else {}
        sweep: Mapping[str, Any] = record.sweep if record else {}
        findings = record.findings if record else None
        known = record.trials(store) if record else 0
        if not status and findings:
            status = {"state": findings.get("state"), "total": findings.get("trials")}
        ended = findings if status.get("state") in ("finished", "stopped") else None
        state = status.get("state", "interrupted")
        claims = store.claims()
        if state == "running" and store.lives(status.get("owner", "")) is False:
            state = "interrupted"
        if claims and (record is None or record.last):
            state = "running"
            ended = None
        work = store.work()
        return {
            "store": str(path),
            "state": state,
            "name": sweep.get("name"),
            "strategy": sweep.get("strategy"),
            "trials": ended.get("trials", known) if ended else known,
            "known": known,
            "sweep": record.number if record else None,
            "ruled_out": store.count_ruled_out(record.contexts, sweep.get("front_name") or "") if record else 0,
            "failed": failures(store, record.contexts) if record else [],
            "sweeps": [other.summary(store) for other in records],
            "total": status.get("total"),
            "seconds": work.seconds,
            "workers": sorted({shown(owner) for owner in claims.values()}),
            "claims": list(claims),
            "findings": findings,
        }
