# SPDX-License-Identifier: MIT
"""Beam search for codes: the nearest point where that can be known, better with more ways, equal however filters are split."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.quantization import code_search
from mpnet.quantization.code_search import search, triangular_factor

Reals = NDArray[np.float64]


def covariance(seed: int, depth: int, causes: int = 3) -> Reals:
    """Return the covariance of inputs that are mixtures of a few, whole numbers of 22 bits at most, inputs that vary most
    last."""
    random = np.random.default_rng(seed)
    mixed = random.standard_normal((400, causes)) @ random.standard_normal((causes, depth))
    x = mixed + 0.3 * random.standard_normal((400, depth))
    products = x.T @ x
    integers: Reals = np.rint(products * (2.0**22 / products.max()))
    order = np.argsort(np.diag(integers), kind="stable")
    return integers[np.ix_(order, order)]


def weights(seed: int, depth: int, filters: int, largest: int = 7) -> Reals:
    return np.rint(np.random.default_rng(seed).uniform(-largest, largest, (depth, filters)) * 1024)


def harm(error: Reals, covariance_of_inputs: Reals) -> Reals:
    return np.einsum("if,ij,jf->f", error, covariance_of_inputs, error)


def make_equal_steps(values: Reals) -> Reals:
    return np.full_like(values, 1024.0)


@pytest.mark.parametrize("depth", [1, 63, 64, 65, 150])
def test_the_factor_is_triangular_and_gives_the_covariance(depth: int) -> None:
    c = covariance(1, depth)
    factor = triangular_factor(c)
    assert np.array_equal(factor, np.triu(np.rint(factor)))
    # A row's values, 2^22 at most in units of 2^-11, are rounded by half a unit: 1 of a product of two. Their division as much.
    unit = 4.0**11
    assert np.abs(factor.T @ factor / unit - c).max() <= 2 * depth


def test_the_factor_of_what_is_not_positive_is_finite_and_bounded() -> None:
    """Rounding may leave a covariance that no inputs have; sums must not grow for it."""
    c = np.full((100, 100), 2.0**20)
    c[np.diag_indices(100)] -= 1.0
    factor = triangular_factor(c)
    assert np.isfinite(factor).all()
    assert ((factor**2).sum(axis=0) <= 4.0**10 * (2.0**20 + 1)).all()


def test_where_all_ways_are_kept_the_codes_are_the_best_of_all() -> None:
    """64 ways of two codes each; the third code of an input is the best in few filters."""
    c, values = covariance(2, 6), weights(3, 6, 20, largest=1)
    harms = harm(search(values, make_equal_steps(values), triangular_factor(c), 1, 64), c)
    every = np.array(list(itertools.product((-1, 0, 1), repeat=6)), np.float64) * 1024
    best = np.min([harm(values - codes[:, None], c) for codes in every], axis=0)
    assert (harms >= best).all()
    assert (harms == best).mean() >= 0.9


def test_more_ways_err_less() -> None:
    c, values = covariance(4, 150), weights(5, 150, 40)
    errors = [harm(search(values, make_equal_steps(values), triangular_factor(c), 7, beams), c).sum() for beams in (1, 2, 8)]
    assert errors[0] > errors[1] > errors[2]
    nearest = values - np.clip(np.rint(values / 1024), -7, 7) * 1024
    assert errors[0] < 0.5 * harm(nearest, c).sum()


@pytest.mark.parametrize("beams", [1, 8])
def test_codes_stay_in_their_range_and_on_their_steps(beams: int) -> None:
    values = weights(6, 70, 9, largest=12)
    steps = np.random.default_rng(7).integers(1, 5, values.shape) * 256.0
    codes = (values - search(values, steps, triangular_factor(covariance(8, 70)), 3, beams)) / steps
    assert np.array_equal(codes, np.rint(codes))
    assert np.abs(codes).max() == 3


@pytest.mark.parametrize("beams", [1, 8])
def test_inputs_that_have_nothing_to_do_with_each_other_are_rounded_to_nearest(beams: int) -> None:
    values = weights(9, 130, 5, largest=9)
    error = search(values, make_equal_steps(values), triangular_factor(np.diag(np.arange(1.0, 131.0))), 7, beams)
    assert np.array_equal(values - error, np.clip(np.rint(values / 1024), -7, 7) * 1024)


def test_how_filters_are_split_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    c, values = covariance(10, 130), weights(11, 130, 23)
    expected = search(values, make_equal_steps(values), triangular_factor(c), 7, 4)
    monkeypatch.setattr(code_search, "_STATE", 130 * 4 * 5)
    assert np.array_equal(search(values, make_equal_steps(values), triangular_factor(c), 7, 4), expected)
