"""Weights in groups: every 32 input channels of a filter's tap have a step, a small multiple of the filter's scale.

A code of b bits times a multiplier of 8 - b bits is a whole number of eight bits. So weights in groups are int8 weights with
one scale per output channel, whatever multiplies them, and only memory knows that they take fewer bits (csrc/conv/groups.h).
docs/decisions/0010-groups-of-32-channels.md says why.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.model.quantization import GROUP
from mpnet.quantization.weights import WeightScheme, squared_error, weight_scales, whole_codes

# Of the largest step that a filter's groups want, in parts of the largest multiplier.
_SCALES = np.arange(100, 69, -2, dtype=np.float32) / np.float32(100)


def largest_multiplier(bits: int) -> int:
    """Codes times it are of eight bits."""
    return 1 << (8 - bits)


def multiplier_bytes(filters: int, taps: int, channels: int, bits: int) -> int:
    """What the multipliers of a layer take whose filters read so many channels at so many taps."""
    return -(-filters * taps * -(-channels // GROUP) * (8 - bits) // 8)


def quantize_groups(weights: NDArray[np.float32], scheme: WeightScheme) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """(products of codes and multipliers, scales) of weights (out, in / groups, ...): as quantize_weights."""
    scales, multipliers = group_steps(weights, scheme)
    steps = (scales[:, None] * multipliers).astype(np.float32)
    whole = whole_codes(weights.reshape(len(weights), -1), steps, scheme) * multipliers
    return whole.astype(np.int8).reshape(weights.shape), scales


def group_steps(weights: NDArray[np.float32], scheme: WeightScheme) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(scales, multipliers) of weights (out, in / groups, ...): (out,), and a whole number for each weight, (out, values).

    A filter's scale is the one of 16 with which the squared error is least, where every group takes the best of three
    multipliers about the step that it would have alone.
    """
    blocks = _blocks(weights)
    filters, groups, size = blocks.shape
    rows = blocks.reshape(-1, size)
    alone = np.where(np.abs(rows).max(axis=1) > 0, weight_scales(rows, scheme), np.float32(0)).reshape(filters, groups)
    top, most = alone.max(axis=1), np.float32(largest_multiplier(scheme.bits))
    least = np.full(filters, np.inf)
    scales, multipliers = np.ones(filters, np.float32), np.ones((filters, groups), np.float32)
    for part in _SCALES:
        scale = np.where(top > 0, np.maximum(top / most * part, np.float32(2.0**-100)), np.float32(1)).astype(np.float32)
        near = np.rint(alone / scale[:, None])
        errors, chosen = np.full((filters, groups), np.inf), multipliers
        for beside in (-1, 0, 1):
            tried = np.clip(near + np.float32(beside), np.float32(1), most).astype(np.float32)
            error = squared_error(rows, (scale[:, None] * tried).astype(np.float32).reshape(-1), scheme)
            better = error.reshape(filters, groups) < errors
            errors = np.where(better, error.reshape(filters, groups), errors)
            chosen = np.where(better, tried, chosen)
        total = np.add.accumulate(errors, axis=1)[:, -1]
        better = total < least
        least = np.where(better, total, least)
        scales = np.where(better, scale, scales)
        multipliers = np.where(better[:, None], chosen, multipliers)
    return scales, _spread(multipliers, weights)


def _blocks(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """(out, taps * groups, 32), the last group filled up with zeros."""
    filters, channels = weights.shape[:2]
    groups = -(-channels // GROUP)
    padded = np.zeros((filters, groups * GROUP, weights[0, 0].size), np.float32)
    padded[:, :channels] = weights.reshape(filters, channels, -1)
    return np.asarray(padded.reshape(filters, groups, GROUP, -1).transpose(0, 3, 1, 2).reshape(filters, -1, GROUP))


def _spread(multipliers: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of each group, (out, taps * groups) -> of each weight, (out, in / groups * taps)."""
    filters, channels = weights.shape[:2]
    of_group = multipliers.reshape(filters, weights[0, 0].size, -1).transpose(0, 2, 1)
    return np.asarray(np.repeat(of_group, GROUP, axis=1)[:, :channels].reshape(filters, -1))
