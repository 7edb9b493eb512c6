"""Which configurations can still be on the front, found out from as few images as that takes.

Images come in rounds, those that decide most first. After each, what a configuration's measures can be at most (see
`evaluation.ceiling`) is held against rivals that are measured already: what one of them beats even so is dominated for
certain and goes. Who is left after the last round is measured on the other images as well.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Callable, Iterator, Mapping, Protocol, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import objective
from mpnet.data.dataset import Dataset
from mpnet.sweep.front import Rivals, to_minimise
from mpnet.trial.kit import Ceilings, Kit

ENDS = (0.12, 0.15, 0.18, 0.21, 0.24, 0.27, 0.3, 0.33, 0.36, 0.39, 0.42, 0.46, 0.5, 0.55, 0.6, 0.66, 0.72, 0.78, 0.84)
"""Shares of the images after which the rounds end: a round costs little beside its images."""
ROUNDING = 1e-9
"""Percent by which means of the same precisions may differ."""
HASTE = 1.1
"""How much more than so far a configuration is taken to lose per image, when it is guessed in which round a look pays."""
TOGETHER = 128
"""Configurations that are judged in one call: enough to make calls cheap, few enough that what they find stays in the cache."""
SAMPLE = 16
"""Configurations of the first large unit that say on which images most is lost: these are looked at first."""
SAMPLED, MANY = 7, 64
"""Of so many configurations one of seven is looked at behind the first round; the others when these say that it pays."""


class Looks(Protocol):
    """What configurations find, looked at a few images at a time."""

    def look(self, keys: Sequence[str], images: NDArray[np.intp]) -> None:
        """Run these configurations on the images at these positions."""

    def found(self, keys: Sequence[str], since: int) -> Any:
        """What some of the last keys find in the images of all looks from number `since` on, one key after the other."""


class Elimination:
    """Holds configurations against rivals on one data set.

    kit: of the network's task. baseline: findings that agreement is measured against, None: no agreement.
    select: positions of the images that count.
    """

    def __init__(self, dataset: Dataset, kit: Kit[Any], baseline: Any, select: NDArray[np.intp]) -> None:
        self._kit, self._select = kit, select
        self._dataset = dataset.subset(select.tolist())
        self._baseline = None if baseline is None else baseline.of_images(select)
        self._ceilings: dict[tuple[tuple[str, ...], bool], Ceilings[Any]] = {}

    def left(
        self,
        keys: Sequence[str],
        rivals: Rivals,
        looks: Looks,
        costs: Callable[[str], Mapping[str, float]],
        found: Callable[[Sequence[str]], Any],
    ) -> tuple[str, ...]:
        """Those of the keys that no rival beats for certain. costs: of a key, by name. found: what some keys find in all
        images that count, one key after the other."""
        ceilings = self._of(rivals.names, keys, found)
        order = self._select[ceilings.order]
        made = list(rounds(len(order)))
        known = _Known(keys, rivals, costs, np.array([last for _, last in made], dtype=np.intp))
        sampled = np.arange(len(keys)) % (SAMPLED if len(keys) >= MANY else 1) == 0
        for number, (first, last) in enumerate(made):
            if not known.left.any():
                break
            looks.look(known.keys_at(np.flatnonzero(known.left)), order[first:last])
            due = np.flatnonzero(known.left & (known.due == number) & (sampled | (number > 0)))
            for since in np.unique(known.since[due]).tolist():
                behind = due[known.since[due] == since]
                for at in np.array_split(behind, -(-len(behind) // TOGETHER)):
                    found = looks.found(known.keys_at(at), since)
                    known.see(at, ceilings.evidence(found, made[since][0], last))
                    known.take(at, ceilings.most([known.parts[i] for i in at]))
            known.since[due] = number + 1
            known.left[due[known.are_beaten(known.points[due])]] = False
            known.plan(due[known.left[due]], number)
            if number == 0:
                others = np.flatnonzero(~sampled)
                if len(others):
                    known.guess(others, due)
                    known.plan(others, number)
        return known.keys_at(np.flatnonzero(known.left))

    def _of(self, names: tuple[str, ...], keys: Sequence[str], found: Callable[[Sequence[str]], Any]) -> Ceilings[Any]:
        """Many configurations pay for a sample of the first ones, which says on which images most is lost."""
        many = len(keys) >= MANY * SAMPLE
        if (names, many) not in self._ceilings:
            sample = found(keys[:: len(keys) // SAMPLE]) if many else None
            self._ceilings[names, many] = self._kit.ceilings(self._dataset, self._baseline, names, sample)
        return self._ceilings[names, many]


class _Known:
    """What is known of configurations, in rows.

    left:   which of them no rival beats so far. parts: the evidence of each.
    points: (n, objectives) of the rivals' measures: costs, and the most that quality can be, or a guess of it.
    since:  the first round whose images were not judged yet. due: the round after which they will be.
    """

    def __init__(
        self, keys: Sequence[str], rivals: Rivals, costs: Callable[[str], Mapping[str, float]], ends: NDArray[np.intp]
    ) -> None:
        self._keys, self._rivals, self._ends = keys, rivals, ends
        self._objectives = [objective(name) for name in rivals.names]
        self._bounded = np.array([o.higher for o in self._objectives])
        named = [name for name, bounded in zip(rivals.names, self._bounded, strict=True) if not bounded]
        self.points = np.full((len(keys), len(rivals.names)), 100.0)
        for row, key in enumerate(keys):
            found = costs(key)
            self.points[row, ~self._bounded] = [found[name] for name in named]
        self.parts: list[list[Any]] = [[] for _ in keys]
        self.left = np.ones(len(keys), dtype=np.bool_)
        self.since, self.due = np.zeros(len(keys), dtype=np.intp), np.zeros(len(keys), dtype=np.intp)

    def keys_at(self, at: NDArray[np.intp]) -> tuple[str, ...]:
        """The keys of some rows."""
        return tuple(self._keys[i] for i in at)

    def see(self, at: NDArray[np.intp], evidence: Sequence[Any]) -> None:
        """Add to what is known of some rows."""
        for i, part in zip(at, evidence, strict=True):
            self.parts[i].append(part)

    def take(self, at: NDArray[np.intp], most: Mapping[str, NDArray[np.float64]]) -> None:
        """What the measures of some rows can be at most, percent by name."""
        for column, name in enumerate(self._rivals.names):
            if self._bounded[column]:
                self.points[at, column] = most[name]

    def are_beaten(self, points: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether some rival is better than each point (n, objectives) for certain."""
        return self._rivals.beat(to_minimise(points + ROUNDING * self._bounded, self._objectives))

    def guess(self, at: NDArray[np.intp], known: NDArray[np.intp]) -> None:
        """Take it for some rows that layers add up as they do in those that are known."""
        keys, columns = [self.keys_at(rows) for rows in (known, at)], np.flatnonzero(self._bounded)
        self.points[np.ix_(at, columns)] = if_layers_add_up(keys[0], self.points[np.ix_(known, columns)], keys[1])

    def plan(self, at: NDArray[np.intp], number: int) -> None:
        """When to look at some rows next, behind round `number`: a guess, which decides when time is spent on a proof, never
        what is proven."""
        shares = HASTE * self._ends[number + 1 :] / self._ends[number]
        lost = (100 - self.points[at])[:, None, :] * shares[None, :, None]
        later = np.where(self._bounded, 100 - lost, self.points[at][:, None, :])
        beaten = self.are_beaten(later.reshape(-1, later.shape[2])).reshape(later.shape[:2])
        after = number + 1 + np.argmax(beaten, axis=1) if len(shares) else np.full(len(at), len(self._ends))
        self.due[at] = np.where(beaten.any(axis=1), after, len(self._ends))


def if_layers_add_up(known: Sequence[str], values: NDArray[np.float64], keys: Sequence[str]) -> NDArray[np.float64]:
    """What the measures of keys would be, if each code of each layer added its own to them, as least squares find it.

    values: (known keys, measures). Result: (keys, measures).
    """
    codes = np.array([list(key) for key in (*known, *keys)])
    table = np.hstack([codes == code for code in np.unique(codes)]).astype(np.float64)
    added = np.linalg.lstsq(table[: len(known)], values, rcond=None)[0]
    return np.asarray(table[len(known) :] @ added)


def rounds(images: int) -> Iterator[tuple[int, int]]:
    """First image and end of each round: none is empty, and some images are left."""
    ends = [0, *(round(share * images) for share in ENDS)]
    return ((start, end) for start, end in pairwise(ends) if start < end < images)
