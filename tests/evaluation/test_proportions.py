# SPDX-License-Identifier: MIT
"""Paired shares: published examples, and a second way to the same numbers."""

from __future__ import annotations

from fractions import Fraction
from math import comb, sqrt

import numpy as np
import pytest

from mpnet.errors import DataError
from mpnet.evaluation.proportions import Z95, mcnemar, paired_interval, share_interval


def test_published_examples() -> None:
    """Airway hyper-responsiveness before and after transplantation (Bentur et al. 2009), as in Fagerland, Lydersen and
    Laake (2014), tables 3 and 5: Tango's interval -0.517 to -0.026, exact p 0.070, mid-p 0.039. Wilson's: Newcombe (1998),
    81 of 263."""
    low, high = paired_interval(7, 1, 21)
    assert (round(float(low), 1), round(float(high), 1)) == (-51.7, -2.6)
    assert mcnemar(7, 1) == pytest.approx((0.0703125, 0.0390625), abs=1e-12)
    assert share_interval(81, 263) == pytest.approx((25.53, 36.62), abs=0.005)


def likeliest_share(lost: int, gained: int, images: int, difference: float) -> float:
    """Return the share of lost images that makes what was seen most likely under a difference, by search instead of formula."""
    low, high = max(0.0, -difference), (1 - difference) / 2

    def likelihood(q: float) -> float:
        count_shares = ((gained, q + difference), (lost, q), (images - lost - gained, 1 - 2 * q - difference))
        return sum(count * np.log(max(share, 1e-300)) for count, share in count_shares if count)

    for _ in range(200):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (a, high) if likelihood(a) < likelihood(b) else (low, b)
    return (low + high) / 2


@pytest.mark.parametrize(("lost", "gained", "images"), [(3, 9, 200), (12, 2, 50), (1, 0, 400), (40, 35, 1000)])
def test_ends_are_where_the_score_is_the_normal_quantile(lost: int, gained: int, images: int) -> None:
    ends = paired_interval(lost, gained, images)
    for end, sign in zip(ends, (1, -1), strict=True):
        d = float(end) / 100
        q = likeliest_share(lost, gained, images, d)
        score = (gained - lost - images * d) / sqrt(images * (2 * q + d * (1 - d)))
        assert score == pytest.approx(sign * Z95, abs=1e-3)  # the search for q ends at about 1e-8


def test_exchanging_the_runs_mirrors_everything() -> None:
    low, high = paired_interval(np.array([5, 0, 3]), np.array([2, 0, 30]), np.array([100, 500, 60]))
    mirrored = paired_interval(np.array([2, 0, 30]), np.array([5, 0, 3]), np.array([100, 500, 60]))
    assert np.allclose(low, -mirrored[1], atol=1e-9)
    assert np.allclose(high, -mirrored[0], atol=1e-9)
    assert float(high[1]) == pytest.approx(100 * Z95**2 / (500 + Z95**2), abs=1e-6)
    assert mcnemar(2, 5) == mcnemar(5, 2)


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (1, 0), (4, 4), (3, 11), (60, 91), (700, 640)])
def test_p_values_are_those_of_whole_numbers(lost: int, gained: int) -> None:
    count, fewer = lost + gained, min(lost, gained)
    tail = Fraction(sum(comb(count, i) for i in range(fewer + 1)), 2**count)
    point = Fraction(comb(count, fewer), 2**count)
    exact = min(Fraction(1), 2 * tail)
    mid = Fraction(1) if not count else 1 - point if lost == gained else exact - point
    assert mcnemar(lost, gained) == pytest.approx((float(exact), float(mid)), rel=1e-9)


@pytest.mark.parametrize("counts", [(-1, 0, 5), (3, 3, 5), (0, 0, 0)])
def test_impossible_counts_are_an_error(counts: tuple[int, int, int]) -> None:
    with pytest.raises(DataError):
        paired_interval(*counts)
    with pytest.raises(DataError):
        share_interval(6, 5)
