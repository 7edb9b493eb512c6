# SPDX-License-Identifier: MIT
"""Layers that no reference file covers, against plain formulas in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.assign import assign
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.formats.cfg.read import parse_cfg
from mpnet.formats.weights import parse_weights
from mpnet.kernels.isa import kernels

RANDOM = np.random.Generator(np.random.PCG64(8))
HEADER = np.array([0, 2, 5, 0, 0], "<i4").tobytes()


def run(text: str, values: NDArray[np.float32], x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the last layer's result (c, h, w) of an input (c, h, w)."""
    network = parse_cfg(f"[net]\nwidth={x.shape[2]}\nheight={x.shape[1]}\nchannels={x.shape[0]}\n{text}", "t.cfg")
    prepared = Prepared(network, parse_weights(HEADER + values.astype("<f4").tobytes(), network), kernels())
    session = Session(prepared, build_plan(network, assign(network, "fp32")))
    return session.forward(np.ascontiguousarray(x.transpose(1, 2, 0)[None]))[0][0].transpose(2, 0, 1)


def assert_close(actual: NDArray[np.float32], expected: NDArray[np.float64]) -> None:
    # Sums of at most some hundred products of values below 4.
    np.testing.assert_allclose(actual, expected, rtol=0, atol=3e-5)


def test_deconvolution_spreads_each_pixel_by_its_kernel() -> None:
    """Weights (in, out, size, size); what falls outside the padded result is dropped."""
    c, n, size, stride, pad, h, w = 3, 2, 3, 2, 1, 4, 5
    x = RANDOM.normal(size=(c, h, w)).astype(np.float32)
    bias, weights = RANDOM.normal(size=n), RANDOM.normal(size=(c, n, size, size))
    bias, weights = bias.astype(np.float32), weights.astype(np.float32)
    wide = np.zeros((n, (h - 1) * stride + size, (w - 1) * stride + size))
    for y in range(h):
        for i in range(w):
            contribution = np.einsum("c,cnkl->nkl", x[:, y, i].astype(np.float64), weights.astype(np.float64))
            wide[:, y * stride : y * stride + size, i * stride : i * stride + size] += contribution
    text = f"[deconvolutional]\nfilters={n}\nsize={size}\nstride={stride}\npad=1\nactivation=linear\n"
    result = run(text, np.concatenate([bias, weights.ravel()]), x)
    assert_close(result, wide[:, pad:-pad, pad:-pad] + bias[:, None, None])


def test_upsample_by_a_negative_stride_sums_blocks() -> None:
    x = RANDOM.normal(size=(2, 4, 6)).astype(np.float32)
    result = run("[upsample]\nstride=-2\nscale=0.5\n", np.empty(0), x)
    assert_close(result, 0.5 * x.astype(np.float64).reshape(2, 2, 2, 3, 2).sum(axis=(2, 4)))


def test_local_average_counts_what_lies_inside() -> None:
    x = RANDOM.normal(size=(2, 5, 7)).astype(np.float32)
    result = run("[local_avgpool]\nsize=3\nstride_x=2\nstride_y=1\n", np.empty(0), x)
    padded = np.full((2, 7, 9), np.nan)
    padded[:, 1:6, 1:8] = x
    expected = [[np.nanmean(padded[:, y : y + 3, i : i + 3], axis=(1, 2)) for i in range(0, 7, 2)] for y in range(5)]
    assert_close(result, np.array(expected).transpose(2, 0, 1))


def test_antialiasing_of_different_strides() -> None:
    x = RANDOM.normal(size=(2, 6, 8)).astype(np.float32)
    identity = np.concatenate([np.zeros(2), np.eye(2).ravel()])
    text = "[convolutional]\nfilters=2\nsize=1\nstride_x=2\nstride_y=1\nactivation=linear\nantialiasing=1\n"
    kernel = np.outer([1, 2, 1], [1, 2, 1]) / 16
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    expected = [[(padded[:, y : y + 3, i : i + 3] * kernel).sum(axis=(1, 2)) for i in range(0, 8, 2)] for y in range(6)]
    assert_close(run(text, identity, x), np.array(expected).transpose(2, 0, 1))


def test_softmax_of_an_image_goes_by_darknets_order() -> None:
    """Two rows of 12 values: channel by channel, not pixel by pixel."""
    x = RANDOM.normal(size=(4, 2, 3)).astype(np.float32)
    rows = np.exp(x.astype(np.float64).reshape(2, 12) / 3)
    expected = (rows / rows.sum(axis=1, keepdims=True)).reshape(4, 2, 3)
    assert_close(run("[softmax]\ngroups=2\ntemperature=3\n", np.empty(0), x), expected)
