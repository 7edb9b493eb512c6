# SPDX-License-Identifier: MIT
"""For networks of tens or hundreds of layers: a nested chain by the noise at the heads, then what lies around its front.

Layers are lowered in the order of the noise that they bring for what they save, measured anew as more of them are low, on a few
images (`trial.lowering_order`). Of the chain spaced points are measured on all images. Around those that lose something,
exchanges of layers are looked for by noise and measured, and groups of layers between two points of the front are halved.
Noise says where to look; what is on the front measures decide.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Generator, Iterable, TypeVar

from mpnet.sweep.problem.front import evenly
from mpnet.sweep.problem.problem import Batch, Problem, Results, Walk
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.search.lowerings import SpaceLowerings
from mpnet.sweep.search.strategies import Strategy
from mpnet.trial.lowering_order import Depths, LoweringSearch, Search

SPACED = 26
"""Points of the chain that are measured."""
EXCHANGED = 12
"""Of these, points around which exchanges are looked for."""
RATIO = 0.97
"""Where exchanges matter, the costs of neighbours of the chain that are measured: dearer ones lose as much as they should."""
NOISY = 1e-5
"""Noise (50 dB) from which exchanging layers changes what is found: fp16 alone brings a tenth of that."""
RUNNERS_UP = 2
"""Exchanges that are measured beside the one of least noise: noise is not all."""
HALVINGS, HALVED = 2, 12
"""How often the widest gaps of the front are halved, and how many of them at a time."""

_Answer = TypeVar("_Answer")
_Asking = Generator[Batch, Results, _Answer]


def deep(problem: Problem) -> Walk:
    """Walk the chain, exchanges around it and halved gaps, for every option set."""
    for options in range(len(problem.space.option_sets)):
        yield from _Search(problem, options).walk()


class _Search:
    """The search under one option set."""

    def __init__(self, problem: Problem, options: int) -> None:
        self._problem, self._options = problem, options
        self._lowerings = SpaceLowerings(problem, options)
        self._search = LoweringSearch(self._lowerings.lowest)

    def walk(self) -> Walk:
        """Walk everything that is measured."""
        ends = self._configurations([(0,) * len(self._search.lowest), self._search.lowest])
        yield Batch([Assignment(self._problem.baseline), *ends], stage="both ends")
        chain = list(dict.fromkeys((yield from self._screened(self._search.search_chain()))))
        spaced = evenly(chain, SPACED) if len(chain) > 1 else chain
        noisy = [a for a in spaced if self._search.noise_of(a) > NOISY and a != self._search.lowest]
        dense = [a for pair in pairwise([*noisy, *spaced[-1:]]) for a in self._search.interpolate(*pair, RATIO)]
        raised = [self._with_outputs_raised(a) for a in [*noisy, *dense]]
        yield Batch(self._configurations([*spaced, *dense, *raised, *self._search.rank_alone()]), stage="the chain, 1 of 3")
        exchanged: list[Depths] = []
        for depths in evenly(noisy, EXCHANGED):
            better = yield from self._screened(self._search.exchange(depths))
            exchanged += better[: 1 + RUNNERS_UP]
        yield Batch(self._configurations(exchanged), stage="exchanges around it, 2 of 3")
        for _ in range(HALVINGS):
            known = yield Batch([])
            if not (halves := self._halves(known)):
                break
            yield Batch(halves, stage="gaps of the front, 3 of 3")

    def _with_outputs_raised(self, depths: Depths) -> Depths:
        """Raise the layers that feed outputs by a step: what they round is what is found, more than noise says."""
        outputs = self._problem.outputs
        positions = [variable.positions for variable in self._problem.space.variables]
        return tuple(depth - 1 if depth and outputs & {*of} else depth for depth, of in zip(depths, positions, strict=True))

    def _configurations(self, lowerings: Iterable[Depths]) -> list[Assignment]:
        return [self._lowerings.configuration(a) for a in lowerings]

    def _screened(self, search: Search[_Answer]) -> _Asking[_Answer]:
        """Follow a search of lowerings, whose configurations are screened."""
        try:
            asked = next(search)
            while True:
                found = yield Batch(self._configurations(asked), screen=True)
                asked = search.send(self._lowerings.collect(asked, found))
        except StopIteration as ended:
            answer: _Answer = ended.value
            return answer

    def _halves(self, known: Results) -> list[Assignment]:
        """Walk the configurations that lie half way between neighbours on the front.

        Neighbours with the most accuracy between them come first; of the layers that are lower in the cheaper one those that
        bring least noise are lowered.
        """
        problem = self._problem
        of_options = [c for c in known if c.options == self._options]
        front = [of_options[i] for i in problem.front([known[c] for c in of_options])]
        front.sort(key=lambda c: -problem.cost(known[c]))
        gaps = []
        for dear, cheap in pairwise(front):
            start, end = self._lowerings.depths(dear.key), self._lowerings.depths(cheap.key)
            lowered = [v for v, (a, b) in enumerate(zip(start, end, strict=True)) if a < b]
            if len(lowered) > 1:
                lowered.sort(key=lambda v: (self._search.rank(v, start[v]), v))
                half = list(start)
                for variable in lowered[: len(lowered) // 2]:
                    half[variable] = end[variable]
                gaps.append(
                    (problem.quality(known[cheap]) - problem.quality(known[dear]), self._lowerings.configuration(tuple(half)))
                )
        gaps.sort(key=lambda gap: gap[0])
        return [c for _, c in gaps[:HALVED] if c not in known]


STRATEGY = Strategy(deep, screens=True)
