# SPDX-License-Identifier: MIT
"""Racing with upper bounds: which configurations can still be on the front, found out from as few images as that takes.

Images come in rounds, those first on which a sample of configurations loses most. After each round the upper bound of a
configuration's measures (see `evaluation.upper_bound`) is held against rivals that are measured already: what one of them
dominates even so cannot be on the front and leaves the race. Of those that are left after the last round the most promising
are measured on the other images as well, and become rivals of the rest.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Callable, Iterator, Mapping, Protocol, Sequence, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import Measure, objective
from mpnet.data.dataset import Dataset
from mpnet.sweep.problem.front import Rivals, dominated, non_dominated, to_minimise
from mpnet.trial.kit import Kit, Predictions, UpperBounds

ROUND_ENDS = (0.02, 0.03, 0.04, 0.05, 0.07, 0.09, 0.12, 0.15, 0.18, 0.22, 0.26, 0.3, 0.35, 0.4, 0.46, 0.53, 0.62, 0.72, 0.84)
"""Shares of the images after which the rounds end: a round costs little beside its images, and the first ones decide most."""
HIGHEST = 100.0
"""Percent that no measure of quality exceeds: what costs no less than a rival that reaches it needs no image."""
ROUNDING = 1e-9
"""Percent by which means of the same precisions may differ."""
LOSS_GROWTH = 1.1
"""How much more per image than so far a configuration is expected to lose, when the round of its next check is chosen."""
CHECKED_TOGETHER = 128
"""Configurations that are checked in one call: enough to make calls cheap, few enough that predictions stay in the cache."""
SAMPLE = 16
"""Configurations, drawn from the whole space, that say on which images most is lost: these images come first."""
SAMPLED_FROM = 1024
"""Configurations of the smallest space that pays for a sample, which runs on all images."""
FIRST_CHECK_STRIDE, MIN_KEYS_TO_STAGGER = 7, 64
"""Of every FIRST_CHECK_STRIDE of at least MIN_KEYS_TO_STAGGER configurations one is checked after the first round; these say
when the others are.
"""

Costs = Callable[[str], Mapping[str, float]]
"""Of a key, by name of the measure."""


class HasValues(Protocol):
    """The measurements of a configuration: values by name of the measure."""

    @property
    def values(self) -> Mapping[str, float]:
        """Return the figures by name of measure."""
        ...


_Result = TypeVar("_Result", bound=HasValues)


class PartialRuns(Protocol):
    """A runner of configurations on a few images at a time, which keeps what they find."""

    @property
    def failures(self) -> Mapping[str, object]:
        """Return the keys so far with values that are not finite, which have no predictions."""

    def run(self, keys: Sequence[str], images: NDArray[np.intp]) -> None:
        """Run these configurations on the images at these positions."""

    def predictions(self, keys: Sequence[str], first_run: int) -> Predictions:
        """Return what some keys of the last call of `run` find in the images of all calls from number `first_run` on.

        Result: of one key after the other.
        """


class Race:
    """Races configurations against rivals on one data set.

    kit: of the network's task. baseline: predictions that agreement is measured against, None: no agreement.
    select: positions of the images that count. order: of these positions, in which they are looked at, None: by what the
    baseline finds. No order makes a bound wrong.
    """

    def __init__(
        self,
        dataset: Dataset,
        kit: Kit[Any],
        baseline: Predictions | None,
        select: NDArray[np.intp],
        order: NDArray[np.intp] | None = None,
    ) -> None:
        self._kit, self._select, self._order = kit, select, order
        self._dataset = dataset.subset(select.tolist())
        self._baseline = None if baseline is None else baseline.of_images(select)
        self._bounds: dict[tuple[str, ...], UpperBounds[Any]] = {}

    def survivors(self, keys: Sequence[str], rivals: Rivals, runs: PartialRuns, costs: Costs) -> tuple[Survivors, Counter[int]]:
        """Find the keys that did not fail and are not certain to be dominated by a rival.

        Return them and how many were ruled out after how many images. costs: of a key, by name.
        """
        if rivals.names not in self._bounds:
            self._bounds[rivals.names] = self._kit.upper_bounds(self._dataset, self._baseline, rivals.names, self._order)
        bounds = self._bounds[rivals.names]
        order = self._select[bounds.order]
        ends = list(rounds(len(order)))
        field = _Field(keys, rivals, costs, np.array([end for _, end in ends], dtype=np.intp))
        first_checked = np.arange(len(keys)) % (FIRST_CHECK_STRIDE if len(keys) >= MIN_KEYS_TO_STAGGER else 1) == 0
        ruled_out: Counter[int] = Counter()
        for number, (start, end) in enumerate(ends):
            if not field.remaining.any():
                break
            runs.run(field.keys_at(np.flatnonzero(field.remaining)), order[start:end])
            if runs.failures:
                field.remaining &= [key not in runs.failures for key in keys]
            is_due = (field.next_check == number) & (first_checked | (number > 0)) | (number == len(ends) - 1)
            checked = np.flatnonzero(field.remaining & is_due)
            for first_round in np.unique(field.first_unchecked[checked]).tolist():
                same_round = checked[field.first_unchecked[checked] == first_round]
                for rows in np.array_split(same_round, -(-len(same_round) // CHECKED_TOGETHER)):
                    evidence = bounds.evidence(runs.predictions(field.keys_at(rows), first_round), ends[first_round][0], end)
                    field.add_evidence(rows, evidence, bounds)
            field.first_unchecked[checked] = number + 1
            dominated_rows = checked[field.are_dominated(field.points[checked])]
            field.remaining[dominated_rows] = False
            if len(dominated_rows):
                ruled_out[end] += len(dominated_rows)
            field.choose_next_check(checked[field.remaining[checked]], number)
            unchecked = np.flatnonzero(~first_checked)
            if number == 0 and len(unchecked) and len(checked):
                field.predict(unchecked, checked)
                field.choose_next_check(unchecked, number)
        rows = np.flatnonzero(field.remaining)
        return Survivors(field.keys_at(rows), rivals.names, field.points[rows], ends[-1][1] if ends else 0), ruled_out

    def images_by_loss(self, names: tuple[str, ...], sample: Predictions) -> NDArray[np.intp]:
        """Return an order of the images that count (positions in `select`), those first on which a sample loses most.

        names: of the objectives. sample: what some configurations find in the images that count, one after the other.
        """
        return self._kit.image_order(self._dataset, self._baseline, names, sample)


@dataclass(frozen=True)
class Survivors:
    """Keys that a race left over.

    names: of the objectives; points: (keys, objectives), the most that each can be; images: how many they ran
    on.
    """

    keys: tuple[str, ...]
    names: tuple[str, ...]
    points: NDArray[np.float64]
    images: int

    def measure_non_dominated(self, measure: Callable[[Sequence[str]], Sequence[_Result]]) -> list[_Result]:
        """Measure all but those that one of the others dominates for certain.

        Return what `measure` gives of them.

        Keys that no other one could dominate, if all were as good as they can be, come first; they are rivals of the rest.
        measure: of keys, in order; what fails is left out.
        """
        objectives = [objective(name) for name in self.names]
        best = to_minimise(_at_best(self.points, objectives), objectives)
        remaining = np.arange(len(self.keys))
        results: list[_Result] = []
        while len(remaining):
            best_rows = np.sort(non_dominated(best[remaining]))
            new_results = measure([self.keys[row] for row in remaining[best_rows]])
            results += new_results
            values = np.array([[result.values[name] for name in self.names] for result in new_results]).reshape(
                -1, len(objectives)
            )
            remaining = np.delete(remaining, best_rows)
            remaining = remaining[~dominated(best[remaining], to_minimise(values, objectives))]
        return results


def _at_best(points: NDArray[np.float64], objectives: Sequence[Measure]) -> NDArray[np.float64]:
    """Move points to the best that they can be for certain: means of the same precisions may differ by ROUNDING."""
    return np.where([o.higher for o in objectives], np.minimum(points + ROUNDING, HIGHEST), points)


def points_without_images(keys: Sequence[str], names: Sequence[str], costs: Costs) -> NDArray[np.float64]:
    """Return the best that objectives can be of keys that nothing is known of: (keys, objectives), costs and HIGHEST."""
    points = np.full((len(keys), len(names)), HIGHEST)
    columns = {name: column for column, name in enumerate(names) if not objective(name).higher}
    for row, key in enumerate(keys):
        costs_of_key = costs(key)
        points[row, [*columns.values()]] = [costs_of_key[name] for name in columns]
    return points


def ruled_out_by_costs(keys: Sequence[str], rivals: Rivals, costs: Costs) -> tuple[str, ...]:
    """Return the keys that a rival dominates without any image: it reaches HIGHEST and costs less."""
    objectives = [objective(name) for name in rivals.names]
    perfect = [all(-value >= HIGHEST for value, o in zip(p, objectives, strict=True) if o.higher) for p in rivals.points]
    if not any(perfect):
        return ()
    beaten = rivals.beat(to_minimise(points_without_images(keys, rivals.names, costs), objectives))
    return tuple(key for key, ruled_out in zip(keys, beaten, strict=True) if ruled_out)


class _Field:
    """The configurations of a race, one row each.

    remaining: bool, which of them no rival dominates so far. evidence: of each, by check.
    points: (n, objectives) of the rivals' measures: costs, and the upper bound of quality, or a prediction of it.
    first_unchecked: the first round whose images were not checked yet. next_check: the round after which they will be.
    """

    def __init__(self, keys: Sequence[str], rivals: Rivals, costs: Costs, ends: NDArray[np.intp]) -> None:
        self._keys, self._rivals, self._ends = keys, rivals, ends
        self._objectives = [objective(name) for name in rivals.names]
        self._bounded = np.array([o.higher for o in self._objectives])
        self.points = points_without_images(keys, rivals.names, costs)
        self._evidence: list[list[object]] = [[] for _ in keys]
        self.remaining = np.ones(len(keys), dtype=np.bool_)
        self.first_unchecked, self.next_check = np.zeros(len(keys), dtype=np.intp), np.zeros(len(keys), dtype=np.intp)

    def keys_at(self, rows: NDArray[np.intp]) -> tuple[str, ...]:
        """Return the keys of some rows."""
        return tuple(self._keys[row] for row in rows)

    def add_evidence(self, rows: NDArray[np.intp], evidence: Sequence[object], bounds: UpperBounds[Any]) -> None:
        """Limit some rows by what was found in the images of their check, one piece of evidence each, and before."""
        for row, piece in zip(rows, evidence, strict=True):
            self._evidence[row].append(piece)
        highest = bounds.most([self._evidence[row] for row in rows])
        for column in np.flatnonzero(self._bounded):
            self.points[rows, column] = highest[self._rivals.names[column]]

    def are_dominated(self, points: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return whether some rival is better than each point (n, objectives) for certain."""
        return self._rivals.beat(to_minimise(_at_best(points, self._objectives), self._objectives))

    def predict(self, rows: NDArray[np.intp], checked_rows: NDArray[np.intp]) -> None:
        """Fill in the bounds of some rows as if layers added up as they do in the checked rows."""
        columns = np.flatnonzero(self._bounded)
        bounds = self.points[np.ix_(checked_rows, columns)]
        self.points[np.ix_(rows, columns)] = predict_additively(self.keys_at(checked_rows), bounds, self.keys_at(rows))

    def choose_next_check(self, rows: NDArray[np.intp], number: int) -> None:
        """Choose the round, after round `number`, in which rows are checked next.

        It is the first after which a rival is expected to dominate them. A prediction, which decides when time is spent on a
        proof, never what is proven.
        """
        growth = LOSS_GROWTH * self._ends[number + 1 :] / self._ends[number]
        losses = (HIGHEST - self.points[rows])[:, None, :] * growth[None, :, None]
        later = np.where(self._bounded, HIGHEST - losses, self.points[rows][:, None, :])
        beaten = self.are_dominated(later.reshape(-1, later.shape[2])).reshape(later.shape[:2])
        next_round = number + 1 + np.argmax(beaten, axis=1) if len(growth) else np.full(len(rows), len(self._ends))
        self.next_check[rows] = np.where(beaten.any(axis=1), next_round, len(self._ends))


def predict_additively(measured_keys: Sequence[str], values: NDArray[np.float64], keys: Sequence[str]) -> NDArray[np.float64]:
    """Predict the measures of keys as if each code of each layer added its own to them, as least squares find it.

    values: (measured keys, measures). Result: (keys, measures).
    """
    codes = np.array([list(key) for key in (*measured_keys, *keys)])
    table = np.hstack([codes == code for code in np.unique(codes)]).astype(np.float64)
    contributions = np.linalg.lstsq(table[: len(measured_keys)], values, rcond=None)[0]
    return np.asarray(table[len(measured_keys) :] @ contributions)


def rounds(images: int) -> Iterator[tuple[int, int]]:
    """Yield the first image and end of each round: none is empty, and some images are left."""
    ends = [0, *(round(share * images) for share in ROUND_ENDS)]
    return ((start, end) for start, end in pairwise(ends) if start < end < images)
