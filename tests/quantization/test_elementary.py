# SPDX-License-Identifier: MIT
"""Elementary functions that decide: near the true values, and the same alone as in vectors."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.quantization.elementary import cos, exp, log, logistic, matmul, power, sin, tanh

DRAWS = np.random.default_rng(0)
POSITIVE = np.concatenate(
    [np.ldexp(DRAWS.uniform(0.5, 1, 200), DRAWS.integers(-900, 900, 200)), DRAWS.uniform(0.99, 1.01, 50), [1.0]]
)
REAL = np.concatenate([DRAWS.uniform(-700, 700, 200), DRAWS.uniform(-1, 1, 50), [0.0]])


ANGLES = np.concatenate([DRAWS.uniform(-1000, 1000, 200), DRAWS.uniform(-1, 1, 50), [0.0, 1e5]])
SMALL_ARGUMENTS = np.concatenate([DRAWS.uniform(-20, 20, 100), DRAWS.normal(0, 0.1, 50), [0.0, 1e-6]])


def true_sine(x: Decimal) -> Decimal:
    x %= Decimal("6.283185307179586476925286766559005768394338798750211641949889184615632812572417997")
    term = total = x
    for n in range(2, 80, 2):
        term = -term * x * x / (n * (n + 1))
        total += term
    return total


def true_cosine(x: Decimal) -> Decimal:
    return 1 - 2 * true_sine(x / 2) ** 2


def true_tangent(x: Decimal) -> Decimal:
    return 1 - 2 / ((2 * x).exp() + 1)


def true_logistic(x: Decimal) -> Decimal:
    return 1 / (1 + (-x).exp())


@pytest.mark.parametrize(
    ("function", "x", "true", "units"),
    [
        (log, POSITIVE, Decimal.ln, 3),
        (exp, REAL, Decimal.exp, 2),
        (tanh, SMALL_ARGUMENTS, true_tangent, 4),
        (logistic, SMALL_ARGUMENTS, true_logistic, 3),
    ],
)
def test_values_are_those_of_the_function_to_a_few_units_in_the_last_place(
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    x: NDArray[np.float64],
    true: Callable[[Decimal], Decimal],
    units: int,
) -> None:
    values = function(x)
    with localcontext() as context:
        context.prec = 70
        for value, argument in zip(values.tolist(), x.tolist(), strict=True):
            exact = true(Decimal(argument))
            assert abs(Decimal(value) - exact) <= units * Decimal(float(np.spacing(abs(float(exact)))))
    np.testing.assert_array_equal(values, [function(x[i : i + 1])[0] for i in range(len(x))])


def test_what_is_far_below_is_nothing() -> None:
    np.testing.assert_array_equal(exp(np.array([-701.0, -np.inf])), [0.0, 0.0])


@pytest.mark.parametrize(("function", "true"), [(sin, true_sine), (cos, true_cosine)])
def test_waves_are_those_of_the_function_to_four_units_in_the_last_place_of_one(
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]], true: Callable[[Decimal], Decimal]
) -> None:
    values = function(ANGLES)
    with localcontext() as context:
        context.prec = 70
        for value, argument in zip(values.tolist(), ANGLES.tolist(), strict=True):
            assert abs(Decimal(value) - true(Decimal(argument))) <= 4 * Decimal(2.0**-53)
    np.testing.assert_array_equal(values, [function(ANGLES[i : i + 1])[0] for i in range(len(ANGLES))])


def test_values_outside_a_function_are_infinite_or_no_numbers() -> None:
    arguments = np.array([0.0, -1.0, np.inf, np.nan])
    np.testing.assert_array_equal(log(arguments), [-np.inf, np.nan, np.inf, np.nan])
    np.testing.assert_array_equal(exp(np.array([800.0, np.inf, np.nan])), [np.inf, np.inf, np.nan])
    np.testing.assert_array_equal(tanh(np.array([np.inf, -np.inf, -0.0])), [1.0, -1.0, -0.0])
    np.testing.assert_array_equal(np.isnan(sin(np.array([np.inf, np.nan, 1e300]))), [True, True, True])


def test_whole_powers_are_products_and_others_are_near() -> None:
    x = DRAWS.uniform(0.1, 3, 50)
    np.testing.assert_array_equal(power(x, np.asarray(2.0)), x * x)
    np.testing.assert_array_equal(power(-x, np.asarray(3.0)), -x * (x * x))
    np.testing.assert_array_equal(power(x, np.asarray(-1.0)), 1 / x)
    np.testing.assert_array_equal(power(x, np.asarray(0.5)), np.sqrt(x))
    np.testing.assert_allclose(power(x, np.asarray(0.3)) ** 10, x**3, rtol=1e-14)
    bases, exponents = np.array([-8.0, 0.0, 0.0, -2.0, -2.0]), np.array([1 / 3, -1.0, 0.0, 65.0, 66.0])
    np.testing.assert_allclose(power(bases, exponents), [np.nan, np.inf, 1.0, -(2.0**65), 2.0**66], rtol=1e-13)


def test_products_of_matrices_add_in_the_order_of_the_rows() -> None:
    a, b = DRAWS.normal(size=(2, 3, 50)), DRAWS.normal(size=(50, 4))
    one_by_one = [
        [[sum((r * c for r, c in zip(row, column, strict=True)), 0.0) for column in b.T] for row in matrix] for matrix in a
    ]
    np.testing.assert_array_equal(matmul(a, b), one_by_one)
    assert matmul(np.zeros((2, 0)), np.zeros((0, 3))).tolist() == [[0.0] * 3] * 2
