# SPDX-License-Identifier: MIT
"""The chain of lowered layers and exchanges around it, on noise that is computed and not measured."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Callable, TypeVar

from mpnet.trial.lowering_order import Depths, LoweringSearch, MeasuredLowering, Search

_Answer = TypeVar("_Answer")
Measure = Callable[[Depths], MeasuredLowering | None]


def follow(search: Search[_Answer], measure: Measure) -> tuple[_Answer, list[Depths]]:
    """Return what a search finds, and what it asked for."""
    requested_depths: list[Depths] = []
    try:
        batch = next(search)
        while True:
            requested_depths += batch
            batch = search.send({a: lowering for a in batch if (lowering := measure(a)) is not None})
    except StopIteration as stop:
        answer: _Answer = stop.value
        return answer, requested_depths


def adding_up(seed: int, layers: int, steps: int = 1) -> Callable[[Depths], MeasuredLowering]:
    """Return noise and cost of which every layer and step has its own share."""
    generator = random.Random(seed)
    noise = [[generator.expovariate(1) for _ in range(steps)] for _ in range(layers)]
    price = [[generator.uniform(0.2, 2) for _ in range(steps)] for _ in range(layers)]
    full_cost = sum(map(sum, price))

    def measure(depths: Depths) -> MeasuredLowering:
        lowered = [(layer, step) for layer, depth in enumerate(depths) for step in range(depth)]
        return MeasuredLowering(sum(noise[i][s] for i, s in lowered), full_cost - sum(price[i][s] for i, s in lowered))

    return measure


def test_the_chain_is_nested_from_all_high_to_all_low() -> None:
    chain, requested_depths = follow(LoweringSearch((2,) * 9).search_chain(), adding_up(1, 9, 2))
    assert chain[0] == (0,) * 9
    assert chain[-1] == (2,) * 9
    assert all(a <= b for depths, next_depths in pairwise(chain) for a, b in zip(depths, next_depths, strict=True))
    assert len(requested_depths) == len(set(requested_depths))


def test_layers_whose_noise_adds_up_are_lowered_by_noise_for_what_they_save() -> None:
    measure = adding_up(3, 12)
    chain, _ = follow(LoweringSearch((1,) * 12).search_chain(), measure)
    full_cost = measure((0,) * 12).cost
    single = [measure(tuple(int(i == j) for j in range(12))) for i in range(12)]
    order = sorted(range(12), key=lambda i: single[i].noise / (full_cost - single[i].cost))
    assert [{i for i, step in enumerate(a) if step} for a in chain] == [set(order[: sum(a)]) for a in chain]


def test_layers_ranked_alone_are_the_chain_where_noise_adds_up() -> None:
    measure = adding_up(3, 12)
    search = LoweringSearch((1,) * 12)
    chain, _ = follow(search.search_chain(), measure)
    assert set(search.rank_alone()) <= {*chain}
    assert search.rank_alone()[-1] == (1,) * 12
    assert LoweringSearch((1,) * 3).rank_alone() == []


def test_two_layers_that_harm_each_other_are_lowered_last() -> None:
    def measure(depths: Depths) -> MeasuredLowering:
        return MeasuredLowering(0.01 * sum(depths) + (5.0 if depths[0] and depths[1] else 0.0), 10.0 - sum(depths))

    chain, _ = follow(LoweringSearch((1,) * 10).search_chain(), measure)
    assert [sum(a) for a in chain if a[0] and a[1]] == [10]


def test_what_fails_is_passed_by() -> None:
    ample = adding_up(5, 6)
    chain, _ = follow(LoweringSearch((1,) * 6).search_chain(), lambda depths: None if depths[2] else ample(depths))
    assert chain[-1] == (1, 1, 0, 1, 1, 1)
    nothing, _ = follow(LoweringSearch((1,) * 6).search_chain(), lambda depths: None)
    assert nothing == []


def test_an_exchange_has_less_noise_and_costs_no_more() -> None:
    measure = adding_up(7, 20)
    search = LoweringSearch((1,) * 20)
    follow(search.search_chain(), measure)
    poor = tuple(int(i % 2 == 0) for i in range(20))
    search.measures[poor] = measure(poor)
    better, _ = follow(search.exchange(poor), measure)
    assert better
    assert all(search.noise_of(a) < search.noise_of(poor) for a in better)
    assert all(search.measures[a].cost <= search.measures[poor].cost for a in better)
    assert [search.noise_of(a) for a in better] == sorted(search.noise_of(a) for a in better)


def test_three_hundred_layers_ask_for_a_few_measures_a_layer() -> None:
    _, requested_depths = follow(LoweringSearch((1,) * 300).search_chain(), adding_up(11, 300))
    assert len(requested_depths) < 4 * 300


def test_between_two_of_a_chain_costs_fall_evenly() -> None:
    measure = adding_up(3, 60)
    search = LoweringSearch((1,) * 60)
    chain, _ = follow(search.search_chain(), measure)
    dear, cheap = chain[2], chain[8]
    middles = search.interpolate(dear, cheap, 0.97)
    costs = [measure(depths).cost for depths in (dear, *middles, cheap)]
    assert len(middles) > 5
    assert costs == sorted(costs, reverse=True)
    assert max(first / second for first, second in pairwise(costs)) < 1.2
    assert all(a <= b <= c for middle in middles for a, b, c in zip(dear, middle, cheap, strict=True))
    assert search.interpolate(dear, dear, 0.97) == []
