# SPDX-License-Identifier: MIT
"""Whether a front holds when images are noisy, blurred, dark or foggy: `sweep.conditions`.

The configurations of the front and the picks run once more on all images, as they are and under each condition, and are
compared with the baseline under the same condition. For the exact front under one condition, sweep with `data.condition`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from mpnet.config.measures import trial_costs
from mpnet.detection.conditions import Condition, condition
from mpnet.errors import ConfigError
from mpnet.messages import shown
from mpnet.progress import Progress
from mpnet.sweep.choose.picks import AT_ONCE, pick, predict
from mpnet.sweep.problem.front import evenly
from mpnet.sweep.problem.problem import Problem
from mpnet.sweep.problem.space import Configuration
from mpnet.sweep.search.failed import baseline_failed
from mpnet.sweep.setup import SweepSetup
from mpnet.sweep.store import Trial, TrialStore

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
    """Those of `sweep.conditions`. objectives: of the sweep.

    Raises: ConfigError for a condition that does not exist, or comes twice; for an objective that stands for the clean images.
    """
    if texts and SQNR in objectives:
        raise ConfigError(
            f"{source}: sweep.conditions: {SQNR} is not measured under conditions; leave it out of sweep.objectives, "
            "or sweep with data.condition"
        )
    conditions = tuple(condition(text, f"{source}: sweep.conditions") for text in texts)
    twice = next((str(one) for number, one in enumerate(conditions) if one in conditions[:number]), None)
    if twice is not None:
        raise ConfigError(f"{source}: sweep.conditions: {shown(twice)} comes twice; name each once")
    return conditions


@dataclass(frozen=True, eq=False)
class ConditionRuns:
    """Measures configurations under conditions (see the module), each once: what was measured stays in the store."""

    setup: SweepSetup
    store: TrialStore
    contexts: Sequence[int]
    problem: Problem
    conditions: tuple[Condition, ...]
    progress: Progress

    def of(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The `conditions` of a sweep's document. Raises: as running a network does; EngineError where the baseline fails.

        A configuration with values that are not finite under a condition is among `failed`, and has no figures under it, in
        the mean and in the worst.
        """
        entries = self._entries(document)
        named: list[Condition | None] = [None, *self.conditions]
        measured: dict[Configuration, dict[str, Measures]] = {c: {} for c in entries}
        failed = []
        for one in named:
            values_of, reasons = self._measured(one, list(entries))
            for configuration, values in values_of.items():
                measured[configuration][_name(one)] = values
            failed += [
                {"condition": _name(one), "precision": c.key, "options": entries[c]["options"], "reason": reason}
                for c, reason in reasons.items()
            ]
        summaries = {c: _summaries(by, [str(one) for one in self.conditions]) for c, by in measured.items()}
        rows = []
        for configuration, entry in entries.items():
            by_condition = {**measured[configuration], **summaries[configuration]}
            rows.append({**entry, "under": {name: dict(values) for name, values in by_condition.items()}})
        return {
            "conditions": [str(one) for one in self.conditions],
            "images": len(self.setup.bench.dataset.images),
            "of_front": len(document["front"]),
            "rows": rows,
            "failed": failed,
            "front": {name: self._front(name, measured, summaries, entries) for name in (CLEAN, MEAN, WORST)},
            "picks": {name: self._picks(name, measured, summaries, entries) for name in (CLEAN, MEAN, WORST)},
        }

    def _entries(self, document: Mapping[str, Any]) -> dict[Configuration, dict[str, Any]]:
        """What runs: the baseline, the picks, and the front as far as MOST_MEASURED allows; with what documents say of them."""
        texts = [option.text for option in self.problem.space.option_sets]
        front = evenly(document["front"], MOST_MEASURED)
        asked = [entry for entry in (document["baseline"], *document["picks"].values(), *front) if entry is not None]
        return {
            Configuration(entry["precision"], texts.index(entry["options"])): {
                "precision": entry["precision"],
                "options": entry["options"],
                "trial": entry["trial"],
                "costs": {name: value for name, value in entry["costs"].items() if name in trial_costs()},
            }
            for entry in asked
        }

    def _measured(
        self, under: Condition | None, configurations: list[Configuration]
    ) -> tuple[dict[Configuration, Measures], dict[Configuration, str]]:
        """What configurations are worth under a condition, and why some failed."""
        stored: dict[str, dict[str, float]] = self.store.document(_NOTE)
        failed: dict[str, str] = self.store.document(_FAILED_NOTE)
        keys = {c: self._key(under, c) for c in configurations}
        missing = [c for c, key in keys.items() if key not in stored and key not in failed]
        benches = [bench.under(under) for bench in self.setup.benches]
        meter = None
        for start in range(0, len(missing), AT_ONCE):
            part = missing[start : start + AT_ONCE]
            with self.progress(f"under {_name(under)}", None) as advance:
                predictions, reasons = predict(benches.__getitem__, part if meter else [*self._reference, *part], advance)
            for reference in self._reference:
                if reference in reasons:
                    raise baseline_failed(self.setup.bench.network, reference.key, reasons[reference])
            if meter is None:
                baseline = predictions[self._reference[0]] if self._reference else None
                meter = self.setup.bench.kit.meter(self.setup.bench.dataset, baseline)
            stored |= {keys[c]: meter.values(predictions[c], self.problem.names) for c in part if c not in reasons}
            self.store.set_note(_NOTE, json.dumps(stored))
            if reasons:
                failed |= {keys[c]: reason for c, reason in reasons.items()}
                self.store.set_note(_FAILED_NOTE, json.dumps(failed))
        return (
            {c: stored[key] for c, key in keys.items() if key in stored},
            {c: failed[key] for c, key in keys.items() if key in failed},
        )

    @property
    def _reference(self) -> list[Configuration]:
        """What agreement is with; nothing in a sweep without a baseline."""
        return [] if self.setup.baseline is None else [Configuration(self.setup.baseline)]

    def _key(self, under: Condition | None, configuration: Configuration) -> str:
        context = self.contexts[configuration.options]
        return f"{context}:{self.setup.baseline}:{','.join(self.problem.names)}:{_name(under)}:{configuration.key}"

    def _trials(
        self,
        name: str,
        measured: Mapping[Configuration, Mapping[str, Measures]],
        summaries: Mapping[Configuration, Mapping[str, Measures]],
        entries: Mapping[Configuration, Mapping[str, Any]],
    ) -> dict[Configuration, Trial]:
        known = {c: {**measured[c], **summaries[c]} for c in entries}
        return {c: Trial(c.key, {**entries[c]["costs"], **of[name]}) for c, of in known.items() if name in of}

    def _front(self, name: str, *known: Any) -> list[str]:
        trials = self._trials(name, *known)
        configurations = list(trials)
        return [configurations[i].key for i in self.problem.front(list(trials.values()))]

    def _picks(self, name: str, *known: Any) -> dict[str, str]:
        return {pick_name: c.key for pick_name, c in pick(self.problem, self._trials(name, *known)).items()}


def _name(under: Condition | None) -> str:
    return CLEAN if under is None else str(under)


def _summaries(by_condition: Mapping[str, Measures], names: Sequence[str]) -> dict[str, Measures]:
    """In the mean and in the worst; nothing of what failed under one of the conditions."""
    if any(name not in by_condition for name in (CLEAN, *names)):
        return {}
    measures = by_condition[CLEAN]
    return {
        MEAN: {key: sum(by_condition[name][key] for name in names) / len(names) for key in measures},
        WORST: {key: min(by_condition[name][key] for name in names) for key in measures},
    }
