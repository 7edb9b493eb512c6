# SPDX-License-Identifier: MIT
"""The test of a front on images that are noisy, blurred, dark or foggy: `sweep.conditions`.

The configurations of the front and the picks run once more on all images, as they are and under each condition, and are
compared with the baseline under the same condition. For the exact front under one condition, sweep with `data.condition`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Mapping, Sequence

from mpnet.config.measures import trial_costs
from mpnet.detection.conditions import Condition, condition
from mpnet.errors import ConfigError
from mpnet.messages import shown
from mpnet.sweep.choose.picks import AT_ONCE, pick, predict
from mpnet.sweep.choose.recommend import named_configurations
from mpnet.sweep.problem.front import evenly
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.result import ConditionRow, ConditionRows, FailedCondition, SweepResult
from mpnet.sweep.search.failed import baseline_error
from mpnet.sweep.setup import OpenSweep
from mpnet.sweep.store import Trial

SQNR = "head_sqnr_db"
CLEAN = "clean"
"""The images as they are."""
MEAN, WORST = "mean", "worst"
"""Over the conditions; the images as they are do not count in them."""
MOST_MEASURED = 24
"""Configurations of the front that run under conditions, evenly spread, beside the picks."""
_NOTE, _FAILED_NOTE = "conditions/1", "conditions_failed"

Measures = Mapping[str, float]


def conditions_of(texts: Sequence[str], objectives: Sequence[str], source: str) -> tuple[Condition, ...]:
    """Return the conditions of `sweep.conditions`.

    objectives: of the sweep.

    Raises: ConfigError for a condition that does not exist, or comes twice; for an objective that stands for the clean images.
    """
    if texts and SQNR in objectives:
        raise ConfigError(
            f"{source}: sweep.conditions: {SQNR} is not measured under conditions; leave it out of sweep.objectives, "
            "or sweep with data.condition"
        )
    conditions = tuple(condition(text, f"{source}: sweep.conditions") for text in texts)
    twice = next((str(each) for number, each in enumerate(conditions) if each in conditions[:number]), None)
    if twice is not None:
        raise ConfigError(f"{source}: sweep.conditions: {shown(twice)} comes twice; name each once")
    return conditions


@dataclass(frozen=True, eq=False)
class ConditionRuns:
    """Runs of configurations under conditions (see the module), each once: what was measured stays in the store."""

    sweep: OpenSweep
    conditions: tuple[Condition, ...]

    def measure(self, result: SweepResult) -> ConditionRows:
        """Return what the baseline, the picks and the front of a result are worth under each condition.

        A configuration with values that are not finite under a condition is among `failed`, and has no figures under it, in
        the mean and in the worst.
        Raises: as running a network does; EngineError where the baseline fails.
        """
        rows = self._rows(result)
        under: dict[Assignment, dict[str, Measures]] = {configuration: {} for configuration in rows}
        failed: list[FailedCondition] = []
        for condition_or_none in (None, *self.conditions):
            name = _name(condition_or_none)
            measures, reasons = self._measure_under(condition_or_none, list(rows))
            for configuration, values in measures.items():
                under[configuration][name] = values
            failed += [
                FailedCondition(name, configuration.key, rows[configuration].options, reason)
                for configuration, reason in reasons.items()
            ]
        names = [str(one) for one in self.conditions]
        rows = {
            configuration: replace(row, under={**under[configuration], **_summaries(under[configuration], names)})
            for configuration, row in rows.items()
        }
        return ConditionRows(
            conditions=tuple(names),
            images=len(self.sweep.setup.bench.dataset.images),
            of_front=len(result.front),
            rows=tuple(rows.values()),
            failed=tuple(failed),
            front={name: self._front(name, rows) for name in (CLEAN, MEAN, WORST)},
            picks={name: self._picks(name, rows) for name in (CLEAN, MEAN, WORST)},
        )

    def _rows(self, result: SweepResult) -> dict[Assignment, ConditionRow]:
        """Return what runs: the baseline, the picks, and the front as far as MOST_MEASURED allows; nothing is measured yet."""
        front = evenly(result.front, MOST_MEASURED)
        selected = [row for row in (result.baseline, *named_configurations(result).values(), *front) if row is not None]
        return {
            self.sweep.configuration_of(row): ConditionRow(
                row.precision,
                row.options,
                row.trial,
                {name: value for name, value in row.costs.items() if name in trial_costs()},
                {},
            )
            for row in selected
        }

    def _measure_under(
        self, condition: Condition | None, configurations: list[Assignment]
    ) -> tuple[dict[Assignment, Measures], dict[Assignment, str]]:
        """Return what configurations are worth under a condition (None: images as they are), and why some failed."""
        setup, store = self.sweep.setup, self.sweep.store
        stored = store.read_figures(_NOTE)
        failed = {key: str(reason) for key, reason in store.document(_FAILED_NOTE).items()}
        keys = {configuration: self._key(condition, configuration) for configuration in configurations}
        missing = [configuration for configuration, key in keys.items() if key not in stored and key not in failed]
        meter = None
        for start in range(0, len(missing), AT_ONCE):
            group = missing[start : start + AT_ONCE]
            with self.sweep.progress(f"under {_name(condition)}", None) as advance:
                requested = group if meter else [*self._reference, *group]
                predictions, reasons = predict(lambda number: setup.bench_of(number).under(condition), requested, advance)
            for reference in self._reference:
                if reference in reasons:
                    raise baseline_error(setup.bench.network, reference.key, reasons[reference])
            if meter is None:
                baseline = predictions[self._reference[0]] if self._reference else None
                meter = setup.bench.kit.meter(setup.bench.dataset, baseline)
            names = self.sweep.problem.names
            stored |= {keys[c]: meter.values(predictions[c], names) for c in group if c not in reasons}
            store.set_note(_NOTE, json.dumps(stored))
            if reasons:
                failed |= {keys[configuration]: reason for configuration, reason in reasons.items()}
                store.set_note(_FAILED_NOTE, json.dumps(failed))
        return (
            {configuration: stored[key] for configuration, key in keys.items() if key in stored},
            {configuration: failed[key] for configuration, key in keys.items() if key in failed},
        )

    @property
    def _reference(self) -> list[Assignment]:
        """Return what agreement is with; nothing in a sweep without a baseline."""
        setup = self.sweep.setup
        return [] if setup.baseline is None else [setup.reference(setup.baseline)]

    def _key(self, condition: Condition | None, configuration: Assignment) -> str:
        context, baseline = self.sweep.contexts[configuration.options], self.sweep.setup.baseline
        return f"{context}:{baseline}:{','.join(self.sweep.problem.names)}:{_name(condition)}:{configuration.key}"

    def _front(self, name: str, rows: Mapping[Assignment, ConditionRow]) -> tuple[str, ...]:
        trials = _trials_under(name, rows)
        configurations = list(trials)
        return tuple(configurations[index].key for index in self.sweep.problem.front(list(trials.values())))

    def _picks(self, name: str, rows: Mapping[Assignment, ConditionRow]) -> dict[str, str]:
        picks = pick(self.sweep.problem, _trials_under(name, rows))
        return {pick_name: configuration.key for pick_name, configuration in picks.items()}


def _trials_under(name: str, rows: Mapping[Assignment, ConditionRow]) -> dict[Assignment, Trial]:
    """Return the trials as if images had always been under a condition, of those that have figures under it."""
    return {
        configuration: Trial(configuration.key, {**row.costs, **row.under[name]})
        for configuration, row in rows.items()
        if name in row.under
    }


def _name(condition: Condition | None) -> str:
    return CLEAN if condition is None else str(condition)


def _summaries(by_condition: Mapping[str, Measures], names: Sequence[str]) -> dict[str, Measures]:
    """Return the measures in the mean and in the worst of the conditions; nothing of what failed under one of them."""
    if any(name not in by_condition for name in (CLEAN, *names)):
        return {}
    measures = by_condition[CLEAN]
    return {
        MEAN: {key: sum(by_condition[name][key] for name in names) / len(names) for key in measures},
        WORST: {key: min(by_condition[name][key] for name in names) for key in measures},
    }
