# SPDX-License-Identifier: MIT
"""Whether what a sweep found survives in another engine: its configurations, exported and run there on the same images.

A configuration survives when, in the engine, agreement AP is at most 1 point (without a baseline AP at most 0.5 points)
below what mpnet measures of it on the same images, and it still keeps the sweep's limits: the trial's figures, changed
by what AP and agreement change between mpnet and the engine.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Mapping, Sequence

from mpnet.backends.deployment import Deployment, ready
from mpnet.backends.partition import ENGINE, SCALAR, check_backends
from mpnet.backends.placement import placements, warnings_of
from mpnet.config.experiment import OWN_BACKENDS, Experiment, VerifySection
from mpnet.config.measures import DEPLOYED
from mpnet.engine.assign import assign_key
from mpnet.engine.bind import LayerFailure
from mpnet.engine.plan import Plan
from mpnet.errors import ConfigError
from mpnet.progress import Advance, Progress
from mpnet.sweep.problem.problem import Problem
from mpnet.sweep.problem.space import Configuration
from mpnet.sweep.setup import SweepSetup
from mpnet.sweep.store import Trial, TrialStore
from mpnet.trial.comparison import Comparison, deployment_of
from mpnet.trial.latency import IN_ENGINE, IN_MPNET, measure_in_turn
from mpnet.trial.workbench import Workbench

AGREEMENT_LOST, AP_LOST = 1.0, 0.5
"""Points that a configuration may lose in the engine and still survive."""
RULE = (
    f"it survives when the engine's agreement AP is at most {AGREEMENT_LOST:g} point (without a baseline AP at most "
    f"{AP_LOST:g}) below mpnet's own, and all limits are still kept"
)


def verifying(experiment: Experiment, section: VerifySection) -> tuple[str, ...]:
    """The backends, by preference, that a sweep is verified in. Raises: ConfigError when they are unknown or missing."""
    names = section.engine or experiment.backends
    if names == OWN_BACKENDS:
        raise ConfigError(
            f"{experiment.source}: key 'sweep.verify.engine' is missing; say in which engine to verify, such as "
            "sweep.verify: {engine: openvino}, or give the experiment `backends`"
        )
    check_backends(names)
    for name in names:
        if name not in (ENGINE, SCALAR):
            ready(name)
    return names


@dataclass(frozen=True, eq=False)
class Verification:
    """Verifies configurations in another engine (see the module), once for each of its versions: results stay in the store."""

    setup: SweepSetup
    store: TrialStore
    contexts: Sequence[int]
    problem: Problem
    section: VerifySection
    engines: tuple[str, ...]
    progress: Progress

    def of(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The `verified` of a sweep's document; also kept as a note of the store. Raises: as running does."""
        entries = list(document["front"]) if self.section.front else [e for e in [document["best"]] if e is not None]
        rows: list[dict[str, Any]] = []
        notes: dict[str, None] = {}
        version = ""
        images = len(self.setup.bench.inputs)
        with self.progress(f"verifying in {self._engine}", images * len(entries)) as advance:
            for entry in entries:
                row = self._row(entry, advance)
                version = row["version"] or version
                notes.update(dict.fromkeys(row.pop("notes", [])))
                rows.append(row)
        verified = {"engine": self._engine, "version": version, "rule": RULE, "notes": list(notes), "rows": rows}
        self.store.set_note(self._note, json.dumps(verified))
        return verified

    def _row(self, entry: Mapping[str, Any], advance: Advance) -> dict[str, Any]:
        options = [option.text for option in self.problem.space.option_sets].index(entry["options"])
        configuration = Configuration(entry["precision"], options)
        bench = self.setup.benches[options]
        plan = bench.plan(assign_key(bench.network, configuration.key))
        row: dict[str, Any] = {
            "precision": configuration.key,
            "options": entry["options"],
            "trial": entry["trial"],
            "context": self.contexts[options],
            "version": "",
        }
        try:
            deployment = deployment_of(bench, plan, self.engines if len(self.engines) > 1 else self.engines[0])
        except ConfigError as error:
            advance(len(bench.inputs))
            return {**row, "survived": False, "why": str(error)}
        same = self._done.get(f"{row['context']}:{configuration.key}:{deployment.digest}:{deployment.version}")
        if same is not None:
            advance(len(bench.inputs))
            measured = same
        else:
            try:
                measured = self._measure(bench, plan, deployment, advance)
            except LayerFailure as failure:
                return {**row, "version": deployment.version, "survived": False, "why": failure.reason}
        row.update(measured, version=deployment.version, files=deployment.digest, notes=list(deployment.notes))
        why = self._lost(configuration, measured)
        return {**row, "survived": not why, "why": why}

    @property
    def _note(self) -> str:
        return f"verified/{','.join(map(str, self.contexts))}:{self._engine}"

    @property
    def _engine(self) -> str:
        return "+".join(self.engines)

    @property
    def _measures(self) -> tuple[str, str]:
        """The task's quality, and its agreement with the baseline."""
        task = self.setup.bench.kit.task
        return task.quality, task.agreement

    @cached_property
    def _done(self) -> dict[str, dict[str, Any]]:
        """Figures of an earlier verification, by all that decides them."""
        stored = self.store.document(self._note) or {}
        measures = (*self._measures, "latency_ms")
        names = (*measures, *(DEPLOYED + name for name in measures), "head_error", "falls_back")
        return {
            f"{row['context']}:{row['precision']}:{row['files']}:{row['version']}": {name: row[name] for name in names}
            for row in stored.get("rows", [])
            if "files" in row
        }

    def _measure(self, bench: Workbench, plan: Plan, deployment: Deployment, advance: Advance) -> dict[str, Any]:
        key = self.setup.baseline
        reference = None if key is None else bench.plan(assign_key(bench.network, key))
        comparison = Comparison(bench, plan, reference, deployment)
        outcomes = comparison.run(advance)
        meter = bench.kit.meter(
            bench.dataset, None if comparison.reference is None else outcomes[comparison.reference].predictions
        )
        in_mpnet, in_engine = (meter.values(outcomes[name].predictions, ()) for name in (IN_MPNET, IN_ENGINE))
        times = measure_in_turn(bench, {IN_MPNET: plan}, deployment).both()
        layers = placements(bench.configuration(plan.precision), deployment.exported, deployment.executed)
        return {
            **{name: in_mpnet.get(name) for name in self._measures},
            "latency_ms": times["mpnet_latency_ms"],
            **{DEPLOYED + name: in_engine.get(name) for name in self._measures},
            DEPLOYED + "latency_ms": times["latency_ms"],
            "head_error": outcomes[IN_ENGINE].head_error,
            "falls_back": warnings_of(layers, deployment.engine),
        }

    def _lost(self, configuration: Configuration, row: Mapping[str, Any]) -> str:
        """Why a configuration does not survive, '' when it does."""
        quality, agreement = self._measures
        changes = {name: row[DEPLOYED + name] - row[name] for name in self._measures if row[name] is not None}
        name, limit = (agreement, AGREEMENT_LOST) if agreement in changes else (quality, AP_LOST)
        if -changes[name] > limit:
            return f"{name} is {-changes[name]:.2f} points lower there"
        known = self.store.find(self.contexts[configuration.options], [configuration.key])
        first = self.store.find(self.contexts[0], [self.problem.baseline])
        if configuration.key in known and self.problem.baseline in first:
            trial, baseline = known[configuration.key], first[self.problem.baseline]
            there = {name: trial.values[name] + by for name, by in changes.items() if name in trial.values}
            moved = Trial(trial.key, {**trial.values, **there})
            if self.problem.meets(trial, baseline):
                broken = [limit_name for limit_name, excess in self.problem.excesses(moved, baseline) if excess > 0]
                if broken:
                    return f"breaks {', '.join(broken)} there"
        return ""
