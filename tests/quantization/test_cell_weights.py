# SPDX-License-Identifier: MIT
"""Cells of a head count by the likeliest of their objects, in whole numbers that are the same on every CPU."""

from __future__ import annotations

import numpy as np

from mpnet.engine.observe import channel_means
from mpnet.engine.prepare import Prepared
from mpnet.kernels.isa import kernels
from mpnet.model.weights import random_weights
from mpnet.quantization.cell_weights import MOST, cell_weights
from tests.sweep.sweep_networks import tiny_yolo


def test_a_cell_counts_as_its_likeliest_anchor() -> None:
    head = np.zeros((1, 1, 4, 2 * 6), np.float32)
    head[..., 4], head[..., 10] = [-100, 0, 100, -2], [-100, -3, -100, 2]
    expected = 1 + np.rint((MOST - 1) / (1 + np.exp([100, 0, -100, -2])))
    assert np.array_equal(cell_weights(head, 2, 4, logistic=False)[0, 0], expected)


def test_what_is_a_probability_already_is_taken_as_it_is() -> None:
    head = np.zeros((1, 1, 2, 6), np.float32)
    head[0, 0, :, 4] = [0, 1]
    assert np.array_equal(cell_weights(head, 1, 4, logistic=True), [[[1, MOST]]])


def test_means_of_what_heads_read_follow_their_cells_and_no_others_do() -> None:
    network = tiny_yolo()
    prepared = Prepared(network, random_weights(network, 1), kernels())
    images = [np.random.default_rng(2).random((2, *network.in_shape), np.float32)]
    plain, weighed = (channel_means(prepared, images, weighed=are_cells_weighed) for are_cells_weighed in (False, True))
    heads = {yolo.inputs[0] for yolo in network.yolos}
    assert heads == {index for index in plain if not np.array_equal(plain[index], weighed[index])}
