"""Which configurations can still be on the front, found out from as few pictures as that takes.

Pictures come in rounds, those that decide most first. After each, what a configuration's measures can be at most (see
`evaluation.ceiling`) is held against rivals that are measured already: what one of them beats even so is dominated for
certain and goes. Who is left after the last round is measured on the other pictures as well.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Callable, Iterator, Mapping, Protocol, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.spec.dataset import Dataset
from mpnet.spec.measures import Measure, objective
from mpnet.sweep.front import Rivals, to_minimise
from mpnet.trial.task import Ceilings, Kit

ENDS = (0.12, 0.16, 0.2, 0.25, 0.3, 0.36, 0.43, 0.51, 0.6, 0.7, 0.82)
"""Shares of the pictures after which the rounds end: a round costs little beside its pictures."""
ROUNDING = 1e-9
"""Percent by which means of the same precisions may differ."""
HASTE = 1.1
"""How much more than so far a configuration is taken to lose per picture, when it is guessed in which round a look pays."""
SAMPLED, MANY = 7, 64
"""Of so many configurations one of seven is looked at behind the first round; the others when these say that it pays."""


class Looks(Protocol):
    """What configurations find, looked at a few pictures at a time."""

    def look(self, keys: Sequence[str], pictures: NDArray[np.intp]) -> None:
        """Run these configurations on the pictures at these positions."""

    def found(self, key: str, since: int) -> Any:
        """What one of the last keys finds in the pictures of all looks from number `since` on."""


class Elimination:
    """Holds configurations against rivals on one data set.

    kit: of the network's task. baseline: findings that agreement is measured against, None: no agreement.
    select: positions of the pictures that count.
    """

    def __init__(self, dataset: Dataset, kit: Kit[Any], baseline: Any, select: NDArray[np.intp]) -> None:
        self._kit, self._select = kit, select
        self._dataset = dataset.subset(select.tolist())
        self._baseline = None if baseline is None else baseline.of_images(select)
        self._ceilings: dict[tuple[str, ...], Ceilings[Any]] = {}

    def left(
        self, keys: Sequence[str], rivals: Rivals, looks: Looks, costs: Callable[[str], Mapping[str, float]],
    ) -> tuple[str, ...]:
        """Those of the keys that no rival beats for certain. costs: of a key, by name."""
        ceilings = self._of(rivals.names)
        order = self._select[ceilings.order]
        made = list(rounds(len(order)))
        ends = np.array([last for _, last in made])
        objectives = [objective(name) for name in rivals.names]
        judged = {key: _Judged(rivals, objectives, costs(key)) for key in keys}
        sampled = {*keys[::SAMPLED]} if len(keys) >= MANY else {*keys}
        samples: dict[str, Mapping[str, float]] = {}
        for number, (first, last) in enumerate(made):
            if not judged:
                break
            looks.look(tuple(judged), order[first:last])
            for key in [key for key, known in judged.items() if known.due == number and (number or key in sampled)]:
                known = judged[key]
                known.parts.append(ceilings.evidence(looks.found(key, known.since), made[known.since][0], last))
                most = ceilings.most(known.parts)
                if number == 0:
                    samples[key] = most
                if known.is_beaten(most):
                    del judged[key]
                else:
                    known.since = number + 1
                    known.plan(most, number, ends)
            if number == 0:
                others = [key for key in keys if key not in sampled]
                for key, most in zip(others, if_layers_add_up(samples, others), strict=True):
                    judged[key].plan(most, number, ends)
        return tuple(judged)

    def _of(self, names: tuple[str, ...]) -> Ceilings[Any]:
        if names not in self._ceilings:
            self._ceilings[names] = self._kit.ceilings(self._dataset, self._baseline, names)
        return self._ceilings[names]


class _Judged:
    """What is known of one configuration.

    since: the first round whose pictures were not judged yet. due: the round after which they will be.
    """

    def __init__(self, rivals: Rivals, objectives: Sequence[Measure], costs: Mapping[str, float]) -> None:
        self._rivals, self._objectives, self._costs = rivals, objectives, costs
        self.parts: list[Any] = []
        self.since = self.due = 0

    def is_beaten(self, most: Mapping[str, float]) -> bool:
        """Whether some rival is better for certain. most: percent by measure."""
        return bool(self._beaten([most])[0])

    def plan(self, most: Mapping[str, float], number: int, ends: NDArray[np.intp]) -> None:
        """When to look next: a guess, which decides when time is spent on a proof, never what is proven.

        most: percent by measure, behind round `number`. ends: pictures seen behind each round.
        """
        later = range(number + 1, len(ends))
        shares = [HASTE * ends[after] / ends[number] for after in later]
        guesses = self._beaten([{name: 100 - (100 - value) * share for name, value in most.items()} for share in shares])
        self.due = next((after for after, beaten in zip(later, guesses, strict=True) if beaten), len(ends))

    def _beaten(self, most: Sequence[Mapping[str, float]]) -> NDArray[np.bool_]:
        rows = [{**self._costs, **{name: value + ROUNDING for name, value in row.items()}} for row in most]
        points = np.array([[row[o.name] for o in self._objectives] for row in rows]).reshape(-1, len(self._objectives))
        return self._rivals.beat(to_minimise(points, self._objectives))


def if_layers_add_up(known: Mapping[str, Mapping[str, float]], keys: Sequence[str]) -> list[dict[str, float]]:
    """What the measures of these keys would be, if each code of each layer added its own to them, as least squares find it."""
    names = list(next(iter(known.values())))
    codes = np.array([list(key) for key in (*known, *keys)])
    table = np.hstack([codes == code for code in np.unique(codes)]).astype(np.float64)
    values = np.array([[most[name] for name in names] for most in known.values()])
    added = np.linalg.lstsq(table[:len(known)], values, rcond=None)[0]
    return [dict(zip(names, map(float, row), strict=True)) for row in table[len(known):] @ added]


def rounds(pictures: int) -> Iterator[tuple[int, int]]:
    """First picture and end of each round: none is empty, and some pictures are left."""
    ends = [0, *(round(share * pictures) for share in ENDS)]
    return ((start, end) for start, end in pairwise(ends) if start < end < pictures)
