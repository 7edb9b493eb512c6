# SPDX-License-Identifier: MIT
"""Images as other conditions would have given them: noise, blur, light, fog, compression.

All is computed in integers, so the bits are the same on every CPU.

Kinds and strengths follow the corruptions of Hendrycks and Dietterich (Benchmarking neural network robustness, ICLR 2019) and
Michaelis and others (Benchmarking robustness in object detection, 2019) where these have them; their generators draw from
floating-point libraries, which differ between machines, so the images are like theirs, not equal to them.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import ConfigError
from mpnet.messages import shown

Image = NDArray[np.uint8]
"""(height, width, 3), RGB."""
Whole = NDArray[np.int64]
_Corruption = Callable[[Whole, int, int], Whole]
"""(image, severity from 0 to 4, seed) -> image; values outside 0 to 255 are clipped behind it."""
SEVERITIES = 5
USUAL_SEVERITY = 3
_REFERENCE_SIDE = 640
"""Blur is as strong as stated on an image whose longer side has so many pixels."""


@dataclass(frozen=True)
class Condition:
    """name: one of CONDITIONS. severity: 1 to 5."""

    name: str
    severity: int

    def __str__(self) -> str:
        return f"{self.name}:{self.severity}"

    def apply(self, image: Image, digest: str) -> Image:
        """Return the image, uint8 (h, w, 3), under this condition. digest: of the image's file, which what is drawn follows."""
        seed = int.from_bytes(hashlib.sha256(f"{digest} {self.name}".encode()).digest()[:8], "little")
        changed = CONDITIONS[self.name](image.astype(np.int64), self.severity - 1, seed)
        return np.clip(changed, 0, 255).astype(np.uint8)


def condition(text: str, location: str) -> Condition:
    """Parse `fog`, or `fog:4` with a severity. location: of the text, for messages. Raises: ConfigError."""
    name, colon, severity = text.strip().partition(":")
    if name not in CONDITIONS:
        raise ConfigError(f"{location}: {shown(text)} is no condition; known are {', '.join(CONDITIONS)}")
    if not colon:
        return Condition(name, USUAL_SEVERITY)
    if severity not in ("1", "2", "3", "4", "5"):
        raise ConfigError(f"{location}: {shown(text)}: a severity is 1 to {SEVERITIES}, such as {name}:{USUAL_SEVERITY}")
    return Condition(name, int(severity))


def _noise(image: Whole, severity: int, seed: int) -> Whole:
    return image + _normal(image.shape, (20, 31, 46, 66, 97)[severity], seed)


def _blur(image: Whole, severity: int, seed: int) -> Whole:
    radius = max(1, ((1, 2, 3, 4, 6)[severity] * max(image.shape[:2]) + _REFERENCE_SIDE // 2) // _REFERENCE_SIDE)
    for _ in range(3):  # three boxes are near to a Gaussian
        image = _box(_box(image, radius, 0), radius, 1)
    return image


def _dark(image: Whole, severity: int, seed: int) -> Whole:
    return image * (160, 120, 88, 64, 44)[severity] // 256


def _bright(image: Whole, severity: int, seed: int) -> Whole:
    value = np.maximum(image.max(axis=2, keepdims=True), 1)
    bright: Whole = image * np.minimum(value + (26, 51, 77, 102, 128)[severity], 255) // value
    return bright


def _jpeg(image: Whole, severity: int, seed: int) -> Whole:
    quality = (25, 18, 15, 10, 7)[severity]
    red, green, blue = np.moveaxis(image, 2, 0)
    # Conversions of JFIF with 16 bits behind the point.
    luma = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
    chroma = (
        (-11059 * red - 21709 * green + 32768 * blue + 32768) >> 16,
        (32768 * red - 27439 * green - 5329 * blue + 32768) >> 16,
    )
    y = _compressed(luma - 128, _LUMA_STEPS, quality) + 128
    cb, cr = (_doubled(_compressed(_halved(plane), _CHROMA_STEPS, quality), luma.shape) for plane in chroma)
    return np.stack(
        [y + ((91881 * cr + 32768) >> 16), y - ((22554 * cb + 46802 * cr + 32768) >> 16), y + ((116130 * cb + 32768) >> 16)],
        axis=2,
    )


def _fog(image: Whole, severity: int, seed: int) -> Whole:
    amount, decay = ((15, 20), (20, 20), (25, 17), (25, 15), (30, 14))[severity]  # tenths
    height, width = image.shape[:2]
    cells = 1
    weight, haze = 1 << 20, np.zeros((height, width), np.int64)
    while cells <= max(height, width) // 2 and weight > 64:
        haze += weight * _smooth(_random((cells + 1, cells + 1), seed + cells), height, width) >> 20
        cells, weight = 2 * cells, weight * 10 // decay
    haze -= haze.min()
    haze = haze * 255 // max(1, int(haze.max()))
    most = max(1, int(image.max()))
    return (10 * image + amount * haze[:, :, None]) * most // (10 * most + amount * 255)


def _night(image: Whole, severity: int, seed: int) -> Whole:
    # Light falls with its square, what is left is bluish, and a sensor at its limit is noisy.
    dim = image * (2 * image + 255) // (3 * 255) * (200, 160, 120, 90, 64)[severity] // 256
    night: Whole = dim * np.array([224, 232, 256]) // 256 + _normal(image.shape, (4, 6, 9, 13, 18)[severity], seed)
    return night


CONDITIONS: Mapping[str, _Corruption] = {
    "noise": _noise,
    "blur": _blur,
    "dark": _dark,
    "bright": _bright,
    "jpeg": _jpeg,
    "fog": _fog,
    "night": _night,
}
"""By name; severities are 1 to 5."""


def _random(shape: tuple[int, ...], seed: int) -> NDArray[np.uint64]:
    """Return uniform words of 64 bits, of the position and the seed alone (Steele and others' SplitMix64, 2014)."""
    count = math.prod(shape)
    start = np.uint64(seed & 0xFFFFFFFFFFFFFFFF)
    word = start + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    drawn: NDArray[np.uint64] = (word ^ (word >> np.uint64(31))).reshape(shape)
    return drawn


def _normal(shape: tuple[int, ...], deviation: int, seed: int) -> Whole:
    """Return nearly normal whole numbers around 0: the sum of four uniform ones, none beyond 3.5 deviations."""
    word = _random(shape, seed)
    parts = [((word >> np.uint64(16 * part)) & np.uint64(0xFFFF)).astype(np.int64) for part in range(4)]
    drawn: Whole = (parts[0] + parts[1] + parts[2] + parts[3] - 2 * 65535) * deviation // 37837  # the deviation of that sum
    return drawn


def _box(image: Whole, radius: int, axis: int) -> Whole:
    """Return the means of 2 * radius + 1 pixels along an axis; pixels beyond the border are those at the border."""
    size = 2 * radius + 1
    padding = [(0, 0)] * image.ndim
    padding[axis] = (radius + 1, radius)
    sums = np.cumsum(np.pad(image, padding, mode="edge"), axis=axis)
    first, last = [slice(None)] * image.ndim, [slice(None)] * image.ndim
    first[axis], last[axis] = slice(None, -size), slice(size, None)
    means: Whole = (sums[tuple(last)] - sums[tuple(first)] + radius) // size
    return means


def _smooth(grid: NDArray[np.uint64], height: int, width: int) -> Whole:
    """Return (height, width), interpolated linearly between the low 16 bits of a grid of (cells + 1) squared words."""
    cells = len(grid) - 1
    values = (grid & np.uint64(0xFFFF)).astype(np.int64)
    row, down = np.divmod(np.arange(height) * cells * 256 // height, 256)
    column, right = np.divmod(np.arange(width) * cells * 256 // width, 256)
    upper = values[row][:, column] * (256 - right) + values[row][:, column + 1] * right
    lower = values[row + 1][:, column] * (256 - right) + values[row + 1][:, column + 1] * right
    smooth: Whole = (upper * (256 - down)[:, None] + lower * down[:, None]) >> 16
    return smooth


# Annex K of the JPEG standard (ITU-T T.81): steps of luma and chroma at quality 50.
_LUMA_STEPS = np.array(
    [
        [16, 11, 10, 16, 24, 40, 51, 61],
        [12, 12, 14, 19, 26, 58, 60, 55],
        [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62],
        [18, 22, 37, 56, 68, 109, 103, 77],
        [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101],
        [72, 92, 95, 98, 112, 100, 103, 99],
    ]
)
_CHROMA_STEPS = np.full((8, 8), 99)
_CHROMA_STEPS[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]
_DCT_BITS = 13
_DCT = np.array(
    [
        [
            round((1 << _DCT_BITS) * math.sqrt((1 if u == 0 else 2) / 8) * math.cos((2 * x + 1) * u * math.pi / 16))
            for x in range(8)
        ]
        for u in range(8)
    ]
)
"""The cosine transform of eight values in whole numbers."""


def _compressed(plane: Whole, steps: NDArray[np.int64], quality: int) -> Whole:
    """Return a plane of values around 0 as JPEG gives it back: coefficients of 8x8 pixels are rounded to their steps."""
    height, width = plane.shape
    padded = np.pad(plane, ((0, -height % 8), (0, -width % 8)), mode="edge")
    blocks = padded.reshape(padded.shape[0] // 8, 8, padded.shape[1] // 8, 8).swapaxes(1, 2)
    step = np.clip((steps * (5000 // quality) + 50) // 100, 1, 255)  # of qualities below 50, as libjpeg scales them
    half = 1 << (2 * _DCT_BITS - 1)
    coefficients = (_DCT @ blocks @ _DCT.T + half) >> (2 * _DCT_BITS)
    kept = np.sign(coefficients) * ((np.abs(coefficients) + step // 2) // step) * step
    pixels = (_DCT.T @ kept @ _DCT + half) >> (2 * _DCT_BITS)
    compressed: Whole = np.clip(pixels, -128, 127).swapaxes(1, 2).reshape(padded.shape)[:height, :width]
    return compressed


def _halved(plane: Whole) -> Whole:
    """Return the means of 2x2 pixels."""
    even = np.pad(plane, ((0, plane.shape[0] % 2), (0, plane.shape[1] % 2)), mode="edge")
    return (even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2] + 2) >> 2


def _doubled(plane: Whole, shape: tuple[int, ...]) -> Whole:
    """Return every value as 2x2 pixels, cut to (height, width)."""
    return plane.repeat(2, axis=0).repeat(2, axis=1)[: shape[0], : shape[1]]
