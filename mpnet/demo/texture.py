# SPDX-License-Identifier: MIT
"""Backgrounds and camera effects: value noise, patterns, lighting, blur and sensor noise, all in integers."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mpnet.demo.raster import ONE, TURN, cosine, sine
from mpnet.demo.stream import Stream

Colour = tuple[int, int, int]
Field = NDArray[np.int32]  # height x width
Image = NDArray[np.uint8]  # height x width x 3, RGB


@lru_cache(maxsize=64)
def _interpolation(size: int, cells: int) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Return for each of `size` pixels the grid value before it and the share of the next one, in 1/256."""
    position = np.arange(size) * cells * 256 // size
    return position // 256, (position % 256).astype(np.int32)


def cloud(stream: Stream, size: int, cells: int) -> Field:
    """Return smooth value noise: int32 in [0, 255], (size, size)."""
    grid = stream.octets((cells + 1) * (cells + 1)).astype(np.int32).reshape(cells + 1, cells + 1)
    cell, part = _interpolation(size, cells)
    rows: NDArray[np.int32] = grid[cell] * (256 - part)[:, None] + grid[cell + 1] * part[:, None]
    blended: Field = (rows[:, cell] * (256 - part) + rows[:, cell + 1] * part) >> 16
    return blended


def _ramp(angle: int, size: int) -> Field:
    """Return the position of each pixel along a direction, in 1/16 pixel: int32, (size, size)."""
    line = np.arange(size, dtype=np.int64)
    x = line * (16 * cosine(angle))
    y = line * (16 * sine(angle))
    ramp: Field = ((x[None, :] + y[:, None]) // ONE).astype(np.int32)
    return ramp


def _pattern(stream: Stream, size: int) -> Field:
    """Return stripes, checks or tiles in random direction and pitch: int32 in [0, 255], (size, size)."""
    angle = stream.below(TURN)
    pitch = 16 * stream.between(6, 40)
    along = _ramp(angle, size)
    kind = stream.below(4)
    if kind == 0:  # triangular wave
        wave = np.abs(along % (2 * pitch) - pitch) * 255 // pitch
        return wave
    across = _ramp(angle + TURN // 4, size)
    if kind == 1:  # hard stripes
        return ((along // pitch) & 1) * 255
    if kind == 2:  # checks
        return (((along // pitch) + (across // pitch)) & 1) * 255
    joint = 16 * stream.between(1, 3)  # bricks: dark joints, each second row shifted
    row = along // pitch
    column = across + (row & 1) * pitch
    return np.where((along % pitch < joint) | (column % (2 * pitch) < joint), 0, 255).astype(np.int32)


def colour(stream: Stream) -> Colour:
    """Return a random colour."""
    return stream.below(256), stream.below(256), stream.below(256)


def contrast(a: Colour, b: Colour) -> int:
    """Return the sum of the channel differences of two colours."""
    return sum(abs(p - q) for p, q in zip(a, b, strict=True))


def background(stream: Stream, size: int) -> Image:
    """Return a textured background without objects."""
    field = cloud(stream, size, stream.between(2, 6)) + cloud(stream, size, stream.between(8, 28))
    field >>= 1
    if stream.chance(65):
        share = stream.between(20, 200)  # of 256
        field = (field * (256 - share) + _pattern(stream, size) * share) >> 8
    tint = cloud(stream, size, stream.between(2, 10))
    first, second, third = colour(stream), colour(stream), colour(stream)
    image = np.empty((size, size, 3), dtype=np.uint8)
    spread = stream.between(60, 256)  # some backgrounds are nearly plain
    for c in range(3):
        base = first[c] * 256 + (second[c] - first[c]) * (field * spread >> 8)
        image[:, :, c] = (base + (third[c] - first[c]) * (tint >> 1)).clip(0, 255 * 256) >> 8
    return image


def _blur_axis(wide: NDArray[np.uint16], axis: int, box: bool) -> NDArray[np.uint16]:
    """Return a three-tap blur along one axis, borders repeated: (1 2 1) / 4, or a box (85 86 85) / 256."""
    pad = [(0, 0)] * 3
    pad[axis] = (1, 1)
    padded = np.pad(wide, pad, mode="edge")
    count = wide.shape[axis]
    left, right = (np.take(padded, range(k, k + count), axis=axis) for k in (0, 2))
    if box:
        return (((left + right) * 85 + wide * 86) >> 8).astype(np.uint16)
    return ((left + right + 2 * wide + 2) >> 2).astype(np.uint16)


def blur(image: Image, stream: Stream) -> Image:
    """Return the image out of focus, moved during exposure, or as it was."""
    kind = stream.below(10)
    if kind < 5:
        return image
    wide = image.astype(np.uint16)
    if kind < 9:
        for _ in range(1 + (kind == 8)):
            wide = _blur_axis(_blur_axis(wide, 0, False), 1, False)
    else:
        axis = stream.below(2)
        for _ in range(stream.between(1, 3)):
            wide = _blur_axis(wide, axis, True)
    return wide.astype(np.uint8)


def light(image: Image, stream: Stream) -> Image:
    """Return the image under uneven, slightly coloured light."""
    size = image.shape[0]
    gain = stream.between(180, 330)  # of 256
    slope = stream.between(0, 110)
    position = _ramp(stream.below(TURN), size)
    span = int(position.max()) - int(position.min())
    shade = gain + (position - int(position.min())) * slope // span - slope // 2
    if stream.chance(30):  # soft shadow
        shade = shade * (256 - (cloud(stream, size, 4) > 128) * stream.between(40, 110)) >> 8
    offset = stream.between(-20, 30)
    lit = np.empty_like(image)
    for c in range(3):
        tinted = shade * stream.between(225, 287) >> 8
        lit[:, :, c] = ((image[:, :, c] * tinted >> 8) + offset).clip(0, 255)
    return lit


def sensor_noise(image: Image, stream: Stream) -> Image:
    """Return the image with bell-shaped noise, the scaled sum of four uniform values a channel."""
    strength = stream.between(0, 14)  # the standard deviation is 0.58 of this
    draws = stream.octets(image.size * 2).reshape(2, *image.shape)
    # Nibbles: four uniform values in [0, 15] a pixel value, mean 30, standard deviation 9.2.
    total = ((draws[0] & 15) + (draws[0] >> 4) + (draws[1] & 15) + (draws[1] >> 4)).astype(np.int16) - 30
    noisy: Image = (image + ((total * strength + 8) >> 4)).clip(0, 255).astype(np.uint8)
    return noisy
