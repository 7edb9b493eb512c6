# SPDX-License-Identifier: MIT
"""Fronts of mixbench, which has its own: they are those that mpnet's sweeps state."""

from __future__ import annotations

import numpy as np

import mixbench.problem
from mixbench.front import best_pairs, front_gap
from mpnet.config import measures
from mpnet.sweep import run
from mpnet.sweep.problem import front as mpnet_front


def test_fronts_and_gaps_are_those_of_mpnet() -> None:
    generator = np.random.default_rng(0)
    for count in (1, 2, 5, 40, 300):
        # Few values, so that qualities, costs and whole pairs are equal now and then.
        pairs = generator.integers(0, 12, (count, 2)).astype(np.float64) / 3
        answers = pairs[generator.random(count) < 0.5] if count > 2 else pairs[:1]
        exact = best_pairs(pairs)
        np.testing.assert_array_equal(exact, mpnet_front.best_pairs(pairs))
        if len(answers):
            gap, expected = front_gap(best_pairs(answers), exact), mpnet_front.front_gap(best_pairs(answers), exact)
            assert (gap.hypervolume_ratio, gap.quality_lost_max, gap.quality_lost_mean, gap.uncovered) == (
                expected.hypervolume_ratio,
                expected.quality_lost_max,
                expected.quality_lost_mean,
                expected.uncovered,
            )


def test_constants_are_those_of_mpnet() -> None:
    assert mixbench.problem.MAX_SQNR_DB == measures.MAX_SQNR_DB
    assert mixbench.problem.MAX_CONFIGURATIONS == run.MAX_CONFIGURATIONS
