# SPDX-License-Identifier: MIT
"""Weights of convolutions in the order in which kernels of GPUs read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mpnet.arrays import Array
from mpnet.kernels.gpu.driver import Driver
from mpnet.kernels.gpu.memory import GpuDevice, GpuStorage
from mpnet.kernels.gpu.source import (
    CHAIN,
    HALF_WINOGRAD,
    HALVES,
    INTEGERS,
    LONG_INTEGERS,
    WINOGRAD,
    ProgramText,
    convolution_program,
    sums_of,
)
from mpnet.kernels.interface import ConvShape
from mpnet.kernels.reference import summed_products, transform_winograd_weights, uses_winograd
from mpnet.model.precision import Precision

LEAST_INPUTS, LEAST_BLOCKS = 16, 4
"""Input channels, and blocks of output channels, from which work items share what they read: half of a group at least."""


class Taps(NamedTuple):
    """The rows and columns of a filter whose products count, the last included."""

    top: int
    bottom: int
    left: int
    right: int


@dataclass(frozen=True)
class GpuWeights:
    """The weights of a convolution on a device.

    program, kernel: that read them. weights: see convolution.cl. weight_sum: float32 (out_channels,), of codes; else None.
    padded_channels: of a group's output, as they lie in memory.
    """

    program: ProgramText
    kernel: str
    weights: GpuStorage
    weight_sum: GpuStorage | None
    taps: Taps
    padded_channels: int


def pack_weights(shape: ConvShape, precision: Precision, stored: Array, device: GpuDevice) -> GpuWeights:
    """Return weights on a device. stored: (out, in / groups, size, size), rounded to their stored type, or codes."""
    sums, width = sums_of(precision), device.driver.channels
    if not uses_winograd(shape):
        sums = {WINOGRAD: CHAIN, HALF_WINOGRAD: HALVES}.get(sums, sums)
    program = convolution_program(sums, precision.stored.dtype)
    if sums in (WINOGRAD, HALF_WINOGRAD):
        is_half = sums == HALF_WINOGRAD
        rows = transform_winograd_weights(stored, np.float16) if is_half else transform_winograd_weights(stored, np.float32)
        weights = _padded(rows.reshape(36, shape.in_channels, shape.out_channels), width)
        return GpuWeights(program, "convolve_winograd", device.upload(weights), None, Taps(0, 2, 0, 2), weights.shape[-1])
    in_group, out_group = shape.in_channels // shape.groups, shape.out_channels // shape.groups
    taps = stored.transpose(2, 3, 1, 0)  # (size, size, in / groups, out)
    if in_group == out_group == 1:
        kernel, weights = "convolve_depthwise", _padded(taps[:, :, 0], width)
    else:
        grouped = taps.reshape(shape.size, shape.size, in_group, shape.groups, out_group)
        weights = _padded(grouped.transpose(3, 0, 1, 2, 4), width)
        kernel = "convolve_tiles" if is_shared(shape, sums, device.driver) else "convolve"
    weight_sum = None
    if sums in (INTEGERS, LONG_INTEGERS):
        totals = stored.reshape(shape.out_channels, -1).sum(axis=1, dtype=np.int32).astype(np.float32)
        weight_sum = device.upload(totals)
    summed = _summed_taps(stored) if sums == CHAIN else Taps(0, shape.size - 1, 0, shape.size - 1)
    return GpuWeights(program, kernel, device.upload(weights), weight_sum, summed, weights.shape[-1])


def is_shared(shape: ConvShape, sums: str, driver: Driver) -> bool:
    """Return whether work items of a convolution share what they read, by convolution_tiles.cl."""
    is_dense = shape.groups == 1 and shape.size in (1, 3) and sums in (CHAIN, INTEGERS)
    blocks = -(-shape.out_channels // driver.channels)
    return driver.shares_memory and is_dense and shape.in_channels >= LEAST_INPUTS and blocks >= LEAST_BLOCKS


def _padded(weights: Array, width: int) -> Array:
    """Return weights with zeros behind the last axis, to a multiple of a width."""
    channels = weights.shape[-1]
    padded = np.zeros((*weights.shape[:-1], -(-channels // width) * width), weights.dtype)
    padded[..., :channels] = weights
    return padded


def _summed_taps(stored: Array) -> Taps:
    """Return the taps whose products count in chains."""
    in_group, size = stored.shape[1:3]
    rows, columns = np.divmod(np.array(summed_products(stored), np.int64) // in_group, size)
    if not rows.size:
        return Taps(0, -1, 0, -1)
    return Taps(int(rows.min()), int(rows.max()), int(columns.min()), int(columns.max()))
