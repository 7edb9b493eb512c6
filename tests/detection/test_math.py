# SPDX-License-Identifier: MIT
"""exp and logistic of csrc/mp_math.h: how near they are, and that their bits are those of the written formula."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from mpnet.kernels._core import ffi, lib
from tests.detection.detection_oracle import F, fma

LOW, HIGH = F(-87.33654), F(88.37626)


def call(function, x):
    x = np.ascontiguousarray(x, dtype=np.float32)
    out = np.empty_like(x)
    function(x.size, ffi.from_buffer("float[]", x), ffi.from_buffer("float[]", out, require_writable=True))
    return out


def ulps(actual, exact):
    """Return the distance from the exact value (float64) in units of the last place of the float32 nearest to it."""
    spacing = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    return np.abs(actual.astype(np.float64) - exact) / spacing


def samples():
    """Return a million values of the whole range, many around zero and around the bounds of the range reduction."""
    random = np.random.RandomState(7)
    midpoints = (np.arange(-126, 128)[:, None] + 0.5 + np.linspace(-1e-5, 1e-5, 21)) * np.log(2)
    values = np.concatenate(
        [random.uniform(LOW, HIGH, 800_000), random.normal(0, 1, 150_000), random.normal(0, 1e-4, 50_000), midpoints.ravel()]
    )
    return np.clip(values.astype(np.float32), LOW, HIGH)


def test_exp_is_within_one_ulp():
    x = samples()
    assert ulps(call(lib.mp_exp_array, x), np.exp(x.astype(np.float64))).max() <= 1.0


def test_logistic_is_within_two_and_a_half_ulp():
    x = samples()
    x = x[x < 87]
    assert ulps(call(lib.mp_logistic_array, x), 1 / (1 + np.exp(-x.astype(np.float64)))).max() <= 2.5


def test_exp_stays_finite_and_normal_outside_its_range():
    low, high, minus, plus = call(lib.mp_exp_array, [-1e30, 1e30, -np.inf, np.inf])
    assert low == minus == call(lib.mp_exp_array, [LOW])[0] >= np.finfo(np.float32).tiny
    assert high == plus == call(lib.mp_exp_array, [HIGH])[0] < np.inf


def test_special_values():
    assert call(lib.mp_exp_array, [0.0, -0.0]).tolist() == [1.0, 1.0]
    assert call(lib.mp_logistic_array, [0.0, 100.0, np.inf]).tolist() == [0.5, 1.0, 1.0]
    assert np.isnan(call(lib.mp_exp_array, [np.nan])[0])
    assert np.isnan(call(lib.mp_logistic_array, [np.nan])[0])


@pytest.fixture(scope="module")
def constants(repository: Path):
    text = (repository / "csrc" / "mp_math.h").read_text()
    definitions = re.findall(r"#define MP_EXP_(\w+) (\S+?)f ", text.replace("\n", " \n"))
    return {name: F(float.fromhex(value) if "x" in value else float(value)) for name, value in definitions}


def test_exp_has_the_bits_of_its_formula(constants):
    """The steps of the header's comment, each rounded exactly once, give the same bits."""
    k = constants
    x = np.concatenate([np.random.RandomState(3).uniform(-87, 88, 300), [0.0, 1.0, -1.0, 0.34657, -0.34658]])
    x = x.astype(np.float32)
    expected = []
    for value in x:
        shifted = fma(value, k["LOG2E"], k["MAGIC"])
        n = shifted - k["MAGIC"]
        r = fma(n, -k["LN2_LOW"], fma(n, -k["LN2_HIGH"], value))
        p = fma(k["Q4"], r, k["Q3"])
        for c in (k["Q2"], k["Q1"], k["Q0"], F(1), F(1)):
            p = fma(p, r, c)
        expected.append(np.ldexp(p, int(n)))
    assert call(lib.mp_exp_array, x).tolist() == [float(e) for e in expected]
