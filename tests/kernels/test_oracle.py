# SPDX-License-Identifier: MIT
"""A recorded oracle gives what the oracle gives, and never another call's results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpnet.errors import NonFiniteError
from mpnet.kernels.reference import ReferenceKernels
from tests.kernels.cases import conv_cases
from tests.kernels.oracle import RecordedKernels
from tests.kernels.test_conv import have_same_bits, run


def test_records_are_the_oracles_results(tmp_path: Path) -> None:
    cases = conv_cases()[:: len(conv_cases()) // 9]
    # The have_same_bits shape with other values, another activation, another rounding.
    changes: tuple[dict[str, Any], ...] = (
        {"seed": 1000},
        {"activation": "mish"},
        {"result_type": "int8", "rounding": "truncate"},
    )
    cases += [replace(cases[0], **change) for change in changes]
    expected = [run(ReferenceKernels(), case) for case in cases]
    for _ in range(2):
        kernels = RecordedKernels(tmp_path)
        for case, (recorded, recorded_ranges) in zip(cases, expected, strict=True):
            actual, actual_ranges = run(kernels, case)
            assert have_same_bits(recorded, actual), case
            assert have_same_bits(recorded_ranges, actual_ranges), case
        assert len(list(tmp_path.iterdir())) == len(cases)


def test_plain_functions_are_recorded_and_errors_are_not(tmp_path: Path) -> None:
    kernels = RecordedKernels(tmp_path)
    x = np.arange(12, dtype=np.float32).reshape(1, 2, 3, 2)
    for activation in ("linear", "relu"):
        for sign in (1, -1):
            out, expected = np.empty_like(x), np.empty_like(x)
            kernels.add(sign * x, x, out, activation=activation)
            ReferenceKernels().add(sign * x, x, expected, activation=activation)
            assert have_same_bits(expected, out)
    assert len(list(tmp_path.iterdir())) == 4
    for _ in range(2):
        with pytest.raises(NonFiniteError):
            kernels.value_range(np.full_like(x, np.inf))
    assert len(list(tmp_path.iterdir())) == 4
