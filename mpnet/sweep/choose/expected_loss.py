# SPDX-License-Identifier: MIT
"""What trials are likely to lose on other images than those that measured them."""

from __future__ import annotations

from typing import Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import MAX_SQNR_DB
from mpnet.quantization.elementary import log
from mpnet.sweep.store import Trial

LEAST_LOSS = 0.25
"""Points below which losses are alike: what one image of some hundred brings."""


def expected_losses(trials: Sequence[Trial], measure_name: str, best: float) -> NDArray[np.float64]:
    """Return the loss to expect of each trial on other images: half what was measured, half what its noise says, as logarithms.

    measure_name: the agreement or accuracy that is lost. best: its value where nothing is lost, percent.

    What was measured on few images is partly luck, so that a front of it holds the lucky ones, and a test of one of these ends
    the tests of all that are cheaper. Noise at the heads is hardly luck. Where no noise was measured the loss is what was.
    """
    measured = np.array([best - trial.get(measure_name) for trial in trials])
    decibels = np.array([trial.get("head_sqnr_db") for trial in trials])
    is_noisy = decibels < MAX_SQNR_DB
    if np.isnan(decibels).any() or len(np.unique(decibels[is_noisy])) < 3:
        return measured
    logarithms = log(np.maximum(measured, 0.0) + LEAST_LOSS)
    x, y = decibels[is_noisy] - decibels[is_noisy].mean(), logarithms[is_noisy]
    slope = min(0.0, float((x * y).sum() / (x * x).sum()))
    predicted = y.mean() + slope * (decibels - decibels[is_noisy].mean())
    expected: NDArray[np.float64] = np.where(is_noisy, (logarithms + predicted) / 2, log(np.full(len(trials), LEAST_LOSS)))
    return expected
