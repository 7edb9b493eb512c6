# SPDX-License-Identifier: MIT
"""The verification of a sweep in another engine: its configurations, exported and run there on the same images.

A configuration survives when, in the engine, agreement AP is at most 1 point (without a baseline AP at most 0.5 points)
below what mpnet measures of it on the same images, and it still keeps the sweep's limits: the trial's figures, changed
by what AP and agreement change between mpnet and the engine.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Mapping

from mpnet.backends.deployment import Deployment, ready
from mpnet.backends.partition import ENGINE, SCALAR, check_backends
from mpnet.backends.placement import placements, warnings_of
from mpnet.config.experiment import OWN_BACKENDS, Experiment, VerifySection
from mpnet.config.measures import DEPLOYED
from mpnet.engine.assign import assign_key
from mpnet.engine.bind import LayerFailure
from mpnet.engine.plan import Plan
from mpnet.errors import ConfigError
from mpnet.formats.documents.typed import as_json, build
from mpnet.progress import Advance
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.result import ConfigurationRow, SweepResult, VerifiedRow, VerifiedRows
from mpnet.sweep.setup import OpenSweep
from mpnet.sweep.store import Trial
from mpnet.trial.comparison import Comparison, deployment_of
from mpnet.trial.identity import configuration_of
from mpnet.trial.latency import IN_ENGINE, IN_MPNET, measure_in_turn
from mpnet.trial.workbench import Workbench

AGREEMENT_LOST, AP_LOST = 1.0, 0.5
"""Points that a configuration may lose in the engine and still survive."""
RULE = (
    f"it survives when the engine's agreement AP is at most {AGREEMENT_LOST:g} point (without a baseline AP at most "
    f"{AP_LOST:g}) below mpnet's own, and all limits are still kept"
)


def verifying(experiment: Experiment, section: VerifySection) -> tuple[str, ...]:
    """Return the backends, by preference, that a sweep is verified in. Raises: ConfigError when they are unknown or missing."""
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

    sweep: OpenSweep
    section: VerifySection
    engines: tuple[str, ...]

    def verify(self, result: SweepResult) -> VerifiedRows:
        """Run the front or the best configuration of a result there, and keep what comes of it in the store.

        Raises: as running does.
        """
        recommended = result.best if result.recommended is None else result.recommended
        selected = result.front if self.section.front else [row for row in [recommended] if row is not None]
        rows: list[VerifiedRow] = []
        notes: dict[str, None] = {}
        images = len(self.sweep.setup.bench.inputs)
        with self.sweep.progress(f"verifying in {self._engine}", images * len(selected)) as advance:
            for row in selected:
                verified, notes_of_export = self._verify_row(row, advance)
                notes.update(dict.fromkeys(notes_of_export))
                rows.append(verified)
        version = next((row.version for row in reversed(rows) if row.version), "")
        verified_rows = VerifiedRows(self._engine, version, RULE, tuple(notes), tuple(rows))
        self.sweep.store.set_note(self._note, json.dumps(as_json(verified_rows)))
        return verified_rows

    def _verify_row(self, row: ConfigurationRow, advance: Advance) -> tuple[VerifiedRow, tuple[str, ...]]:
        """Return what becomes of one configuration there, and notes of its export."""
        configuration = self.sweep.configuration_of(row)
        bench = self.sweep.setup.benches[configuration.options]
        plan = bench.plan(assign_key(bench.network, configuration.key))
        verified = VerifiedRow(
            precision=row.precision,
            options=row.options,
            trial=row.trial,
            context=self.sweep.contexts[configuration.options],
            version="",
            survived=False,
            why="",
        )
        try:
            deployment = deployment_of(bench, plan, self.engines if len(self.engines) > 1 else self.engines[0])
        except ConfigError as error:
            advance(len(bench.inputs))
            return replace(verified, why=str(error)), ()
        verified = replace(verified, version=deployment.version)
        earlier = self._earlier.get(_identity(replace(verified, files=deployment.digest)))
        if earlier is not None:
            advance(len(bench.inputs))
            verified = replace(
                verified, measures=earlier.measures, head_error=earlier.head_error, falls_back=earlier.falls_back
            )
        else:
            try:
                verified = self._measure(verified, bench, plan, deployment, advance)
            except LayerFailure as failure:
                return replace(verified, why=failure.reason), ()
        why = self._why_lost(configuration, verified.measures)
        return replace(verified, files=deployment.digest, survived=not why, why=why), tuple(deployment.notes)

    @property
    def _note(self) -> str:
        return f"verified/{','.join(map(str, self.sweep.contexts))}:{self._engine}"

    @property
    def _engine(self) -> str:
        return "+".join(self.engines)

    @property
    def _measure_names(self) -> tuple[str, str]:
        """Return the names of the task's quality and of its agreement with the baseline."""
        task = self.sweep.setup.bench.kit.task
        return task.quality, task.agreement

    @cached_property
    def _earlier(self) -> dict[tuple[int, str, str | None, str], VerifiedRow]:
        """Return the rows of an earlier verification, by all that decides them."""
        stored = self.sweep.store.document(self._note)
        rows = build(VerifiedRows, stored).rows if stored else ()
        return {_identity(row): row for row in rows if row.files is not None}

    def _measure(self, row: VerifiedRow, bench: Workbench, plan: Plan, deployment: Deployment, advance: Advance) -> VerifiedRow:
        """Run a configuration in mpnet and in the engine, and return its row with the figures of both."""
        key = self.sweep.setup.baseline
        reference = None if key is None else bench.plan(assign_key(bench.network, key))
        comparison = Comparison(bench, plan, reference, deployment)
        outcomes = comparison.run(advance)
        meter = bench.kit.meter(
            bench.dataset, None if comparison.reference is None else outcomes[comparison.reference].predictions
        )
        in_mpnet, in_engine = (meter.values(outcomes[name].predictions, ()) for name in (IN_MPNET, IN_ENGINE))
        times = measure_in_turn(bench, {IN_MPNET: plan}, deployment).both()
        layers = placements(configuration_of(bench, plan.precision), deployment.exported, deployment.executed)
        measures = {
            **{name: in_mpnet.get(name) for name in self._measure_names},
            "latency_ms": times["mpnet_latency_ms"],
            **{DEPLOYED + name: in_engine.get(name) for name in self._measure_names},
            DEPLOYED + "latency_ms": times["latency_ms"],
        }
        falls_back = tuple(warnings_of(layers, deployment.engine))
        return replace(row, measures=measures, head_error=outcomes[IN_ENGINE].head_error, falls_back=falls_back)

    def _why_lost(self, configuration: Assignment, measures: Mapping[str, float | None]) -> str:
        """Return why a configuration does not survive, '' when it does."""
        quality, agreement = self._measure_names
        changes = {}
        for name in self._measure_names:
            in_mpnet, in_engine = measures.get(name), measures.get(DEPLOYED + name)
            if in_mpnet is not None and in_engine is not None:
                changes[name] = in_engine - in_mpnet
        name, limit = (agreement, AGREEMENT_LOST) if agreement in changes else (quality, AP_LOST)
        if -changes[name] > limit:
            return f"{name} is {-changes[name]:.2f} points lower there"
        problem, store, contexts = self.sweep.problem, self.sweep.store, self.sweep.contexts
        trial = store.find(contexts[configuration.options], [configuration.key]).get(configuration.key)
        baseline = store.find(contexts[0], [problem.baseline]).get(problem.baseline)
        if trial is not None and baseline is not None:
            changed = {name: trial.values[name] + change for name, change in changes.items() if name in trial.values}
            in_engine_trial = Trial(trial.key, {**trial.values, **changed})
            if problem.meets(trial, baseline):
                broken = [limit_name for limit_name, excess in problem.excesses(in_engine_trial, baseline) if excess > 0]
                if broken:
                    return f"breaks {', '.join(broken)} there"
        return ""


def _identity(row: VerifiedRow) -> tuple[int, str, str | None, str]:
    """Return all that decides the figures of a row."""
    return row.context, row.precision, row.files, row.version
