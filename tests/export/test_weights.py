# SPDX-License-Identifier: MIT
"""Weights as files of other programs store them."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.export.bundle.weights import as_stored
from mpnet.export.weights import pack_bits, split_blocks
from mpnet.model.precision import PRECISIONS, Precision
from mpnet.quantization.weights import WeightScheme, multiplier_bytes, quantize_groups, quantize_weights


def test_codes_follow_one_another_from_the_lowest_bit_on() -> None:
    assert pack_bits(np.array([[1, -1], [-8, 7], [3, 0]], np.int8), 4) == bytes([0xF1, 0x78, 0x03])
    assert pack_bits(np.array([-7], np.int8), 4) == bytes([0x09])
    assert pack_bits(np.array([1, -1, 2], np.int8), 6) == bytes([0xC1, 0x2F, 0x00])


@pytest.mark.parametrize("channels", [3, 32, 40, 64])
@pytest.mark.parametrize("bits", [4, 6])
def test_weights_in_groups_come_apart_into_codes_and_multipliers(channels: int, bits: int) -> None:
    real = np.random.default_rng(channels).standard_normal((5, channels, 3, 3)).astype(np.float32)
    real[:, :2] *= 9
    real[4] = 0
    weights, _ = quantize_groups(real, WeightScheme("per_group", "mse", bits=bits))
    codes, multipliers = split_blocks(weights, bits)
    size = min(channels, 32)
    assert codes.shape == (5, -(-channels // size), size, 3, 3)
    assert multipliers.shape == (5, len(codes[0]), 1, 3, 3)
    assert (np.abs(codes) < 1 << bits - 1).all()
    assert ((multipliers >= 1) & (multipliers <= 1 << 8 - bits)).all()
    assert (multipliers > 1).any()
    together = (codes * multipliers).reshape(5, -1, 3, 3)
    np.testing.assert_array_equal(together[:, :channels], weights)
    assert not together[:, channels:].any()


@pytest.mark.parametrize("row", [row for row in PRECISIONS.values() if row.is_narrow], ids=str)
def test_a_bundle_has_as_many_bits_as_the_precision(row: Precision) -> None:
    real = np.random.default_rng(row.weight_bits).standard_normal((6, 40, 3, 3)).astype(np.float32)
    real[:, :2] *= 9
    code_bytes = -(-real.size * row.weight_bits // 8)
    plain, _ = quantize_weights(real, WeightScheme(method="mse", bits=row.weight_bits))
    assert len(as_stored(plain, row)) == code_bytes
    grouped, _ = quantize_groups(real, WeightScheme("per_group", "mse", bits=row.weight_bits))
    assert len(as_stored(grouped, row)) == code_bytes + multiplier_bytes(6, 9, 40, row.weight_bits)
