# SPDX-License-Identifier: MIT
"""CRC-32C, by the CPU's instruction in strips of several lengths, beside the definition: one bit after the other."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.kernels._core import ffi, lib

POLYNOMIAL = 0x82F63B78
STRIPS = tuple(3 << bits for bits in (12, 15, 18))  # bytes that are done at once


def definition(crc: int, data: bytes) -> int:
    """Compute by a table of all bytes, each made bit by bit."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def crc(previous: int, data: bytes) -> int:
    return int(lib.mp_crc32c(previous, ffi.from_buffer(data), len(data)))


def test_the_known_value() -> None:
    assert crc(0, b"123456789") == 0xE3069283


@pytest.mark.parametrize(
    "size", [0, 1, 7, 8, 9, *(strip + more for strip in STRIPS for more in (-1, 0, 1)), sum(STRIPS) + 4099]
)
def test_any_length_and_any_cut(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size + 3, dtype=np.uint8).tobytes()[3:]
    expected = definition(7, data)
    assert crc(7, data) == expected
    assert crc(crc(7, data[: size // 3]), data[size // 3 :]) == expected
