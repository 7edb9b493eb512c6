# SPDX-License-Identifier: MIT
"""Sums of squares against float64, and that their bits do not depend on how images are grouped."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.errors import DataError
from mpnet.evaluation.signal import squared_sum


@pytest.mark.parametrize("shape", [(3, 5, 7, 4), (2, 20, 20, 195), (1, 1), (4, 128), (4, 127), (0, 3, 3)])
def test_sums_are_those_of_float64_to_a_hundred_thousandth(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(7)
    a, b = (random.standard_normal(shape, np.float32) for _ in range(2))
    axes = tuple(range(1, len(shape)))
    assert squared_sum(a) == pytest.approx(np.square(a.astype(np.float64)).sum(axes), rel=1e-5)
    assert squared_sum(a, b) == pytest.approx(np.square(a.astype(np.float64) - b).sum(axes), rel=1e-5)


def test_every_image_stands_for_itself() -> None:
    a, b = np.random.default_rng(8).standard_normal((2, 6, 9, 11, 13), np.float32)
    alone = np.concatenate([squared_sum(a[i : i + 1], b[i : i + 1]) for i in range(6)])
    assert np.array_equal(squared_sum(a, b), alone)


def test_equal_tensors_have_no_noise() -> None:
    a = np.random.default_rng(9).standard_normal((2, 300), np.float32)
    assert squared_sum(a, a.copy()).tolist() == [0.0, 0.0]


def test_shapes_must_agree() -> None:
    with pytest.raises(DataError, match=r"\(2, 3\) and \(2, 4\)"):
        squared_sum(np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32))
