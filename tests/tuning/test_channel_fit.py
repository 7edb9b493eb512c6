# SPDX-License-Identifier: MIT
"""A gain and an offset of each channel."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.errors import DataError
from mpnet.quantization.equalise import FoldedConvolution
from mpnet.tuning.channel_fit import ChannelFit


def test_gain_and_offset_are_found() -> None:
    values = np.random.default_rng(0).standard_normal((2, 5, 4, 3)).astype(np.float32)
    gain, offset = np.array([1.25, 0.75, 1.0], np.float32), np.array([0.5, -2.0, 0.0], np.float32)
    fit = ChannelFit()
    for image in values:
        fit.observe((image * gain + offset)[None], image[None])
    found = fit.result()
    # The sums are float64; what remains is the rounding of targets and results to float32.
    np.testing.assert_allclose(found.gain, gain, rtol=1e-6)
    np.testing.assert_allclose(found.offset, offset, atol=1e-6)


def test_without_a_gain_the_offset_is_the_mean_difference() -> None:
    fit = ChannelFit(has_gain=False)
    fit.observe(np.full((1, 1, 2, 1), 3.0, np.float32), np.array([[[[1.0], [2.0]]]], np.float32))
    found = fit.result()
    assert (found.gain.tolist(), found.offset.tolist()) == ([1.0], [1.5])


def test_channels_that_hardly_vary_and_wild_gains_are_left_alone() -> None:
    steady, wild = np.full((1, 1, 4, 1), 2.0, np.float32), np.array([0.0, 1.0, 0.0, 1.0], np.float32).reshape(1, 1, 4, 1)
    fit = ChannelFit()
    fit.observe(np.concatenate([steady + 1, 5 * wild], axis=3), np.concatenate([steady, wild], axis=3))
    found = fit.result()
    assert found.gain.tolist() == [1.0, 1.0]
    assert found.offset.tolist() == [1.0, 2.0]


def test_a_correction_of_a_convolution_is_that_of_its_result() -> None:
    fit = ChannelFit()
    values = np.arange(4, dtype=np.float32).reshape(1, 1, 4, 1)
    fit.observe(values * 0.5 + 1, values)
    convolution = FoldedConvolution(np.full((1, 1, 1, 1), 4.0, np.float32), np.array([2.0], np.float32))
    corrected = fit.result().applied_to(convolution)
    assert (corrected.weights.item(), corrected.bias.item()) == (2.0, 2.0)


def test_nothing_and_nan_are_errors() -> None:
    with pytest.raises(DataError, match="there is no image to tune on"):
        ChannelFit().result()
    with pytest.raises(DataError, match="NaN or infinity"):
        ChannelFit().observe(np.full((1, 1, 1, 1), np.nan, np.float32), np.zeros((1, 1, 1, 1), np.float32))
