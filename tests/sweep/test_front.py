# SPDX-License-Identifier: MIT
"""Fronts against their definitions, spelt out by brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpnet.config.measures import objective
from mpnet.errors import ConfigError
from mpnet.sweep.problem.front import front_gap, hypervolume, non_dominated, to_minimise


def dominates(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.all(a <= b) and np.any(a < b))


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 4), st.integers(0, 30), st.integers(0, 2**32 - 1))
def test_non_dominated_is_the_definition(dimensions: int, count: int, seed: int) -> None:
    # Few distinct values, so that ties and equal points are common.
    points = np.random.default_rng(seed).integers(0, 5, (count, dimensions)).astype(float)
    expected = {i for i in range(count) if not any(dominates(points[j], points[i]) for j in range(count))}
    assert set(non_dominated(points).tolist()) == expected


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4), st.integers(0, 8), st.integers(0, 2**32 - 1))
def test_hypervolume_counts_the_unit_cells(dimensions: int, count: int, seed: int) -> None:
    size = 5
    points = np.random.default_rng(seed).integers(0, size + 2, (count, dimensions)).astype(float)
    cells = 0
    for cell in itertools.product(range(size), repeat=dimensions):
        corner = np.array(cell)
        cells += any(np.all(point <= corner) for point in points if np.all(point < size))
    assert hypervolume(points, [size] * dimensions) == cells


def test_the_front_of_twenty_thousand_points_is_exact() -> None:
    points = np.random.default_rng(5).normal(size=(20_000, 2))
    front = set(non_dominated(points).tolist())
    # A third constant column sends the same points through the general way.
    general = set(non_dominated(np.column_stack([points, np.zeros(len(points))])).tolist())
    assert front == general


def test_the_exact_front_has_no_gap_to_itself() -> None:
    exact = np.array([[40.0, 1.0], [42.0, 2.0], [45.0, 4.0]])
    gap = front_gap(exact, exact)
    assert (gap.hypervolume_ratio, gap.quality_lost_max, gap.uncovered, gap.shared) == (1.0, 0.0, 0, 3)


def test_a_missing_point_costs_quality_at_equal_cost() -> None:
    exact = np.array([[40.0, 1.0], [42.0, 2.0], [45.0, 4.0]])
    gap = front_gap(exact[[0, 2]], exact)
    assert (gap.quality_lost_max, gap.shared, gap.exact_points) == (2.0, 2, 3)
    assert gap.quality_lost_mean == pytest.approx(2 / 3)
    assert 0 < gap.hypervolume_ratio < 1


def test_points_cheaper_than_the_whole_front_are_counted_apart() -> None:
    exact = np.array([[40.0, 1.0], [45.0, 4.0]])
    gap = front_gap(np.array([[45.0, 4.0]]), exact)
    assert (gap.uncovered, gap.quality_lost_max) == (1, 0.0)


def test_an_empty_front_is_an_error() -> None:
    with pytest.raises(ConfigError, match="at least one configuration"):
        front_gap(np.zeros((0, 2)), np.ones((1, 2)))


def test_qualities_are_turned_round() -> None:
    objectives = [objective("AP"), objective("weight_bytes")]
    assert to_minimise(np.array([[44.0, 7.0]]), objectives).tolist() == [[-44.0, 7.0]]


def test_an_unknown_objective_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="'ap'; known are AP, AP50"):
        objective("ap")
