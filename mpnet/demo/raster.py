# SPDX-License-Identifier: MIT
"""Polygons to pixel coverage in integer arithmetic only, so that every machine draws the same image.

Coordinates are fixed point, 64 units to a pixel (UNITS). A pixel is sampled at 4 x 4 points.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

UNITS = 64  # fixed-point units per pixel
SAMPLES = 4  # sample rows and columns per pixel
FULL = SAMPLES * SAMPLES  # coverage of a pixel that is entirely inside
_STEP = UNITS // SAMPLES  # distance of neighbouring samples
TURN = 1024  # angle units in a full turn
ONE = 1 << 14  # sine of a quarter turn


def _sine_table() -> list[int]:
    """Return round(ONE * sin(2 pi k / TURN)) for all k, from a Taylor series in big integers."""
    bits = 96

    # pi to 120 bits, Machin's formula in integers: no libm, whose last bit differs between systems.
    def arctan_inverse(x: int) -> int:
        power = (1 << (bits + 24)) // x
        total, n, sign = power, 1, 1
        while power:
            power //= x * x
            n, sign = n + 2, -sign
            total += sign * (power // n)
        return total

    pi = (4 * (4 * arctan_inverse(5) - arctan_inverse(239))) >> 24
    quarter_sines = []
    for k in range(TURN // 4 + 1):
        angle = 2 * pi * k // TURN
        term, total, n = angle, angle, 1
        while term:
            term = -(((term * angle) >> bits) * angle >> bits) // ((n + 1) * (n + 2))
            if term == -1:  # floor division never reaches zero from below
                break
            total += term
            n += 2
        quarter_sines.append((total * ONE + (1 << (bits - 1))) >> bits)
    quarter = TURN // 4
    full = quarter_sines + [quarter_sines[quarter - k] for k in range(1, quarter + 1)]
    return full + [-full[k] for k in range(1, 2 * quarter)]


_SINE = _sine_table()


def sine(angle: int) -> int:
    """Return ONE * sin(angle), angle in 1/TURN of a full turn."""
    return _SINE[angle % TURN]


def cosine(angle: int) -> int:
    """Return ONE * cos(angle), angle in 1/TURN of a full turn."""
    return _SINE[(angle + TURN // 4) % TURN]


Points = Sequence[tuple[int, int]]


def fill(rings: Sequence[Points], height: int, width: int) -> NDArray[np.bool_]:
    """Return the samples inside the rings (even-odd rule): bool, (height * SAMPLES, width * SAMPLES).

    rings: closed polygons in fixed-point pixels, origin at the upper left corner of the canvas.
    """
    start = np.concatenate([np.asarray(r, dtype=np.int64) for r in rings])
    stop = np.concatenate([np.roll(np.asarray(r, dtype=np.int64), -1, axis=0) for r in rings])
    swap = start[:, 1] > stop[:, 1]
    low = np.where(swap[:, None], stop, start)  # edges x 2, the end with the smaller y
    high = np.where(swap[:, None], start, stop)
    rows, columns = height * SAMPLES, width * SAMPLES
    y = np.arange(rows, dtype=np.int64)[:, None] * _STEP + _STEP // 2  # rows x 1
    crosses = (low[:, 1] <= y) & (y < high[:, 1])  # rows x edges
    row, edge = np.nonzero(crosses)
    rise = high[edge, 1] - low[edge, 1]
    x = low[edge, 0] + (high[edge, 0] - low[edge, 0]) * (y[row, 0] - low[edge, 1]) // rise
    # The first sample whose centre is not left of the crossing; everything from there on toggles.
    first = np.clip((x + _STEP - 1 - _STEP // 2) // _STEP, 0, columns)
    toggles = np.zeros(rows * (columns + 1), dtype=np.uint8)
    np.add.at(toggles, row * (columns + 1) + first, np.uint8(1))
    flags = toggles.reshape(rows, columns + 1)[:, :columns]
    return (np.cumsum(flags, axis=1, dtype=np.uint8) & 1).view(np.bool_)


def coverage(samples: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return how many samples of each pixel are set: uint8 in [0, FULL], (height, width)."""
    # Four 0/1 bytes are one 32-bit word: words add without carries, the product sums the bytes of each.
    words = np.ascontiguousarray(samples).view(np.uint32)
    lines = words[0::4] + words[1::4] + words[2::4] + words[3::4]
    counts: NDArray[np.uint8] = ((lines * np.uint32(0x01010101)) >> np.uint32(24)).astype(np.uint8)
    return counts
