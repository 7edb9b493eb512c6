"""Which configurations can still be on the front, found out from as few pictures as that takes.

Pictures come in rounds, those that decide most first. After each, what a configuration's measures can be at most (see
`evaluation.ceiling`) is held against rivals that are measured already: what one of them beats even so is dominated for
certain and goes. Who is left after the last round is measured as anything else, on all pictures.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.spec.dataset import Dataset
from mpnet.spec.measures import objective
from mpnet.sweep.front import Rivals, to_minimise
from mpnet.trial.task import Ceilings, Kit

ENDS = (0.12, 0.18, 0.25, 0.35, 0.5, 0.7)
"""Shares of the pictures after which the rounds end. Between them is what a round costs besides pictures; behind the last one
another would save no more than that."""
ROUNDING = 1e-9
"""Percent by which means of the same precisions may differ."""

Find = Callable[[Sequence[str], NDArray[np.intp]], Iterable[Any]]
"""What each of some configurations finds in the pictures at these positions."""


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
        self, keys: Sequence[str], rivals: Rivals, find: Find, costs: Callable[[str], Mapping[str, float]],
    ) -> tuple[str, ...]:
        """Those of the keys that no rival beats for certain. costs: of a key, by name."""
        objectives = [objective(name) for name in rivals.names]
        ceilings = self._of(rivals.names)
        known: dict[str, Mapping[str, float]] = {key: costs(key) for key in keys}
        parts: dict[str, list[Any]] = {key: [] for key in keys}
        for first, last in rounds(len(self._select)):
            most = ceilings.after(last)
            for key, found in zip(list(parts), find(list(parts), self._select[ceilings.order[first:last]]), strict=True):
                parts[key].append(found)
                best = {**known[key], **{name: value + ROUNDING for name, value in most(parts[key]).items()}}
                if rivals.beat(to_minimise(np.array([[best[o.name] for o in objectives]]), objectives))[0]:
                    del parts[key]
        return tuple(parts)

    def _of(self, names: tuple[str, ...]) -> Ceilings[Any]:
        if names not in self._ceilings:
            self._ceilings[names] = self._kit.ceilings(self._dataset, self._baseline, names)
        return self._ceilings[names]


def rounds(pictures: int) -> Iterator[tuple[int, int]]:
    """First picture and end of each round: none is empty, and some pictures are left."""
    ends = [0, *(round(share * pictures) for share in ENDS)]
    return ((start, end) for start, end in pairwise(ends) if start < end < pictures)
