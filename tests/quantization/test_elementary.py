# SPDX-License-Identifier: MIT
"""Logarithm and exponential that decide: near the true values, and the same alone as in vectors."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.quantization.elementary import exp, log

DRAWS = np.random.default_rng(0)
POSITIVE = np.concatenate(
    [np.ldexp(DRAWS.uniform(0.5, 1, 200), DRAWS.integers(-900, 900, 200)), DRAWS.uniform(0.99, 1.01, 50), [1.0]]
)
REAL = np.concatenate([DRAWS.uniform(-700, 700, 200), DRAWS.uniform(-1, 1, 50), [0.0]])


@pytest.mark.parametrize(("function", "x", "true", "units"), [(log, POSITIVE, Decimal.ln, 3), (exp, REAL, Decimal.exp, 2)])
def test_values_are_those_of_the_function_to_a_few_units_in_the_last_place(
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    x: NDArray[np.float64],
    true: Callable[[Decimal], Decimal],
    units: int,
) -> None:
    values = function(x)
    with localcontext() as context:
        context.prec = 50
        for value, at in zip(values.tolist(), x.tolist(), strict=True):
            exact = true(Decimal(at))
            assert abs(Decimal(value) - exact) <= units * Decimal(float(np.spacing(abs(float(exact)))))
    np.testing.assert_array_equal(values, [function(x[i : i + 1])[0] for i in range(len(x))])


def test_what_is_far_below_is_nothing() -> None:
    np.testing.assert_array_equal(exp(np.array([-701.0, -np.inf])), [0.0, 0.0])
