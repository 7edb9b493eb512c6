# SPDX-License-Identifier: MIT
"""The configuration of a store that fits budgets, from what is measured already: `mpnet pick`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import HELD_OUT, cost_objective, measure
from mpnet.errors import ConfigError, StoreError
from mpnet.model.keys import json_key
from mpnet.model.plan_key import split_key
from mpnet.model.plan_words import PlanWords
from mpnet.model.precision import INT8
from mpnet.model.task import task_of_protocol
from mpnet.resolve.stored_sweep import StoredSweep, name_assignment, read_sweep
from mpnet.speed.latency import doubt_of
from mpnet.sweep.choose.budgets import BYTE_UNITS, BYTES, LOSS, PERCENT, TIME, TIMES, Budget, read_budgets
from mpnet.sweep.choose.recommend import shown_configurations
from mpnet.sweep.choose.timing import EVERYWHERE_INT8

_TINY = 1e-9
"""Room for rounding: a budget that is the value of a configuration keeps it."""


@dataclass(frozen=True)
class PickedRow:
    """A configuration that fits, or comes nearest.

    words: its precision string in words. values: what it has of each budget, in the budget's unit, by its words.
    saves: percent of the baseline's cost. is_shown: whether tests show that it keeps the budgets of loss.
    """

    precision: str
    words: str
    values: Mapping[str, float]
    cost: float
    saves: float | None
    is_shown: bool = field(metadata=json_key("shown"))


@dataclass(frozen=True)
class OtherBudget:
    """The pick at another amount of one budget. budget: as it would be written. row: what would be picked."""

    option: str
    budget: str
    row: PickedRow


@dataclass(frozen=True)
class PickOutcome:
    """The document that `mpnet pick --json` prints.

    budgets: as given, by option. cost: the measure that cheap is of. count: configurations that there are figures of.
    source: the pick as other commands name it, `STORE:KEY`, with `@N` where there are several option sets; None: no pick.
    pick: the best that fits, None: nothing does, and nearest is least beyond. runner_up: the next that fits.
    looser, tighter: for each budget the next amount that changes the pick, as far as there is one.
    timed_count: configurations that the sweep timed on its machine, where a budget of time is held against these alone; None:
    there is none, or all have a time from a table. doubt: why these times should not be believed, '' for nothing.
    """

    store: str
    budgets: Mapping[str, str]
    cost: str
    count: int
    pick: PickedRow | None
    runner_up: PickedRow | None
    looser: tuple[OtherBudget, ...]
    tighter: tuple[OtherBudget, ...]
    nearest: PickedRow | None
    timed_count: int | None = field(default=None, metadata=json_key("timed"))
    doubt: str = ""
    source: str | None = None


def pick_by_budgets(path: Path, number: int | None, texts: Mapping[str, str]) -> PickOutcome:
    """Pick the cheapest configuration of a sweep that keeps budgets; the most accurate one where none is of loss.

    texts: budgets by option. Losses are those on all images at hand.
    Raises: ConfigError for what is no budget, or one that the store has no figures for; StoreError as `read_sweep`.
    """
    picker = _open_picker(path, number, texts)
    outcome = picker.outcome(texts)
    if outcome.pick is None:
        return outcome
    sweep = "" if number is None else f"{number}/"
    name = name_assignment(path, number, outcome.pick.precision, picker.options)
    return replace(outcome, source=f"{path}:{sweep}{name}")


def pick_name(path: Path, number: int | None, texts: Mapping[str, str]) -> str:
    """Return the name, in its store, of what `pick_by_budgets` picks.

    Raises: StoreError where nothing keeps the budgets; as `pick_by_budgets`.
    """
    picker = _open_picker(path, number, texts)
    outcome = picker.outcome(texts)
    if outcome.pick is None:
        nearest = "" if outcome.nearest is None else f"; nearest is {outcome.nearest.precision}"
        raise StoreError(
            f"{path}: none of its {outcome.count:,} configurations keeps {budgets_text(texts)}{nearest}: name that, or "
            "loosen a budget"
        )
    return name_assignment(path, number, outcome.pick.precision, picker.options)


def budgets_text(texts: Mapping[str, str]) -> str:
    """Write budgets by option, as they were given: `--max-loss 1 AP, --max-bytes 2MB`."""
    return ", ".join(f"{option} {text}" for option, text in texts.items())


def _open_picker(path: Path, number: int | None, texts: Mapping[str, str]) -> _Picker:
    stored = read_sweep(path, None, number)
    task = task_of_protocol(stored.provenance.protocol)
    budgets = [budget for option, text in texts.items() for budget in read_budgets(option, text, task)]
    if not budgets:
        raise ConfigError("name a budget: --max-loss '1 agreement', --max-time 1.2x or --max-bytes 2MB")
    return _Picker(path, stored, budgets)


class _Picker:
    """Budgets on the configurations of a sweep as columns.

    values: (budgets, n) in the budgets' units. order: (n,) rank of each configuration, the best first.
    """

    def __init__(self, path: Path, stored: StoredSweep, budgets: Sequence[Budget]) -> None:
        self._path, self._stored, self._budgets = path, stored, budgets
        self._table = stored.configurations
        if self._table.baseline is None:
            raise StoreError(f"{path}: the baseline is not among the finished trials; go on with the sweep")
        self._task = task_of_protocol(stored.provenance.protocol)
        self._measured_ms: dict[str, float] = {}
        self._timed_count: int | None = None
        self._doubt = ""
        self._cost = cost_objective(stored.sweep.objectives or ())
        self._costs = self._column(self._cost, "sweep again")
        self._values = np.array([self._in_unit(budget) for budget in budgets])
        self._limits = np.array([budget.amount for budget in budgets])[:, None] * (1 + _TINY) + _TINY
        losses = [row for row, budget in zip(self._values, budgets, strict=True) if budget.option == LOSS]
        self._loss = np.max(losses, axis=0) if losses else self._best_known_loss()
        # The cheapest within a loss, the most accurate within costs; keys make it the same every time.
        ordered = (self._loss, self._costs) if losses else (self._costs, self._loss)
        self._order = np.empty(len(self._table), dtype=np.intp)
        self._order[np.lexsort((np.array(self._table.keys), *ordered))] = np.arange(len(self._table))
        self._words = PlanWords.of(
            (layer.name or layer.type, layer.selectors) for layer in stored.sweep.layers if layer.parameters
        )
        self._shown = self._find_shown()

    @property
    def options(self) -> str:
        """Return the text of the option set that all configurations have."""
        return self._stored.options

    def outcome(self, texts: Mapping[str, str]) -> PickOutcome:
        """Return what the budgets pick. texts: the budgets as they were given, by option."""
        within = self._values <= self._limits
        fitting: NDArray[np.bool_] = np.logical_and.reduce(within, axis=0)
        row = self._first(fitting)
        pick = None if row is None else self._row(row)
        others = [] if row is None else [(b, self._all_but(within, i), self._values[i]) for i, b in enumerate(self._budgets)]
        looser, tighter = [], []
        for budget, rest, values in others:
            assert row is not None
            better = rest & (self._order < self._order[row]) & np.isfinite(values)
            if better.any():
                least = values[better].min()
                other = self._first(better & (values <= least))
                looser.append(self._other(budget, least, other))
            smaller = self._first(rest & (values < values[row] - _TINY))
            if smaller is not None:
                tighter.append(self._other(budget, values[smaller], smaller))
        return PickOutcome(
            store=str(self._path),
            budgets=dict(texts),
            cost=self._cost,
            count=len(self._table),
            pick=pick,
            runner_up=None if row is None else self._runner_up(fitting, row),
            looser=tuple(looser),
            tighter=tuple(tighter),
            nearest=None if row is not None else self._nearest(),
            timed_count=self._timed_count,
            doubt=self._doubt,
        )

    def _all_but(self, within: NDArray[np.bool_], index: int) -> NDArray[np.bool_]:
        rest: NDArray[np.bool_] = np.logical_and.reduce(np.delete(within, index, axis=0), axis=0)
        return rest

    def _first(self, rows: NDArray[np.bool_]) -> int | None:
        indices = np.flatnonzero(rows)
        return int(indices[np.argmin(self._order[indices])]) if len(indices) else None

    def _runner_up(self, fitting: NDArray[np.bool_], row: int) -> PickedRow | None:
        """Return the next best that fits and is better in cost or loss; without one the next that fits."""
        others = fitting.copy()
        others[row] = False
        better = others & ((self._loss < self._loss[row]) | (self._costs < self._costs[row]))
        second = self._first(better if better.any() else others)
        return None if second is None else self._row(second)

    def _nearest(self) -> PickedRow | None:
        beyond = (self._values / np.maximum(self._limits, _TINY)).max(axis=0)
        return self._row(int(np.nanargmin(beyond))) if np.isfinite(beyond).any() else None

    def _other(self, budget: Budget, amount: float, row: int | None) -> OtherBudget:
        assert row is not None
        # Rounded up: with the amount as written the configuration fits.
        digits = 4 - len(str(int(amount)))
        scale = 10.0 ** max(0, digits)
        return OtherBudget(budget.option, budget.written(math.ceil(amount * scale - 1e-6) / scale), self._row(row))

    def _row(self, row: int) -> PickedRow:
        key = self._table.keys[row]
        baseline_cost = self._costs[self._table.baseline]
        return PickedRow(
            precision=key,
            words=self._words(key) if self._stored.sweep.layers else "",
            values={
                f"{b.option} in {b.name}": float(values[row]) for b, values in zip(self._budgets, self._values, strict=True)
            },
            cost=float(self._costs[row]),
            saves=float(100 * (1 - self._costs[row] / baseline_cost)) if baseline_cost > 0 else None,
            is_shown=(key, self._stored.options) in self._shown,
        )

    def _find_shown(self) -> set[tuple[str, str]]:
        losses = [budget for budget in self._budgets if budget.option == LOSS]
        budget = {b.unit: b.amount for b in losses if b.unit != PERCENT}
        budget.update((self._task.quality, b.amount * self._points_of_percent()) for b in losses if b.unit == PERCENT)
        if self._stored.result is None or not budget:
            return set()
        return set(shown_configurations(self._stored.result, budget))

    def _points_of_percent(self) -> float:
        """Return the points of quality that one percent of the baseline's is, on the images that select."""
        return float(self._table.columns[self._task.quality][self._table.baseline]) / 100

    def _column(self, name: str, remedy: str) -> NDArray[np.float64]:
        if name not in self._table.columns:
            raise ConfigError(f"{self._path}: has no {measure(name).label} of its configurations; {remedy}")
        return self._table.columns[name]

    def _in_unit(self, budget: Budget) -> NDArray[np.float64]:
        """Return what each configuration has of a budget, in its unit; NaN where that is not known."""
        if budget.option == LOSS:
            loss = self._loss_of(self._task.quality if budget.unit == PERCENT else budget.unit)
            if loss is None:
                other = f"'1 {self._task.quality}'" if measure(budget.unit).kind == "agreement" else "'1 agreement'"
                raise ConfigError(f"{self._path}: has no figures for {budget.option} in {budget.name}; give {other}")
            if budget.unit == PERCENT:
                loss = loss / self._points_of_percent()
            return loss
        column = self._column("weight_bytes", "sweep again") if budget.option == BYTES else self._times()
        if budget.unit == PERCENT:
            column = 100 * column / column[self._table.baseline]
            return column
        if budget.unit == TIMES:
            ratios: NDArray[np.float64] = column / self._int8_reference(budget, column)
            return ratios
        in_unit: NDArray[np.float64] = column / BYTE_UNITS.get(budget.unit, 1.0)
        return in_unit

    def _times(self) -> NDArray[np.float64]:
        """Return milliseconds: of a latency table, else as measured here of the baseline and what the sweep named."""
        if "latency_ms" in self._table.columns:
            return self._table.columns["latency_ms"]
        result, keys = self._stored.result, {EVERYWHERE_INT8: self._int8_key()}
        if result is not None:
            rows = {**result.picks, "baseline": result.baseline, "recommended": result.recommended}
            keys |= {name: row.precision for name, row in rows.items() if row is not None}
        times = {name: time for name, time in (result.times if result is not None else {}).items() if name in keys}
        if not times:
            raise ConfigError(
                f"{self._path}: holds no times, which {TIME} needs; the same `mpnet sweep` again, without --no-time, times "
                f"what it names; with a table of `mpnet profile` (sweep.latency) all have a time; or leave {TIME} out"
            )
        self._measured_ms = {keys[name]: time.median_ms for name, time in times.items()}
        self._timed_count = sum(key in self._measured_ms for key in self._table.keys)
        self._doubt = next((doubt for time in times.values() if (doubt := doubt_of(time))), "")
        return np.array([self._measured_ms.get(key, math.nan) for key in self._table.keys], dtype=np.float64)

    def _int8_key(self) -> str:
        codes, suffix = split_key(self._table.keys[0])
        return INT8.code * len(codes) + suffix

    def _int8_reference(self, budget: Budget, column: NDArray[np.float64]) -> float:
        """Return what int8 everywhere has, which amounts in `x` are times of. column: of all configurations."""
        key, value = self._int8_key(), math.nan
        if key in self._table.keys:
            value = float(column[self._table.keys.index(key)])
        elif budget.option == TIME:
            value = self._measured_ms.get(key, math.nan)
        if math.isfinite(value):
            return value
        written, unit = budget.written(budget.amount), "ms" if budget.option == TIME else "kB"
        if budget.option == TIME and self._timed_count is not None:
            reason, remedy = "was not timed", "the same `mpnet sweep` again, without --no-time, times it"
        else:
            reason, remedy = "has not been tried", "the same sweep with sweep.strategy=one_at_a_time tries it"
        raise ConfigError(
            f"{self._path}: int8 everywhere {reason}, of which {written} is; {remedy}, or give {unit} or % of the baseline's"
        )

    def _loss_of(self, name: str) -> NDArray[np.float64] | None:
        """Return the loss of a measure on all images at hand, percent points; None where it was not measured."""
        images, selecting = self._stored.sweep.images or 0, self._stored.sweep.selecting or 0
        sets = [(name, selecting or 1), (HELD_OUT + name, images - selecting)]
        losses, weights = [], []
        for column, weight in sets:
            values = self._table.columns.get(column)
            if values is None or weight <= 0:
                continue
            best = 100.0 if measure(name).kind == "agreement" else values[self._table.baseline]
            if math.isfinite(best) and np.isfinite(values).any():
                losses.append(best - values)
                weights.append(weight)
        if not losses:
            return None
        average: NDArray[np.float64] = np.average(losses, axis=0, weights=weights)
        return average

    def _best_known_loss(self) -> NDArray[np.float64]:
        for name in (self._task.agreement, self._task.quality):
            loss = self._loss_of(name)
            if loss is not None:
                return loss
        raise ConfigError(
            f"{self._path}: nothing says what its configurations lose; add labels or data.unlabelled, and sweep again"
        )
