# SPDX-License-Identifier: MIT
"""Weights as files of other programs store them: halves, codes of fewer than eight bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array
from mpnet.errors import EngineError
from mpnet.model.network import LayerSpec
from mpnet.model.quantization import GROUP
from mpnet.quantization.weights import largest_multiplier

LARGEST = 65504.0


def round_to_halves(layer: LayerSpec, weights: Array) -> NDArray[np.float16]:
    """Round weights to the nearest half. Raises: EngineError that names the layer for a weight that is beyond all of them."""
    with np.errstate(over="ignore"):
        halves = weights.astype(np.float16)
    if not np.isfinite(halves).all():
        raise EngineError(
            f"layer {layer.index} ({layer.name}) as fp16: a weight is {np.abs(weights).max():g}, beyond {LARGEST:g}, "
            "the largest half; keep it in fp32"
        )
    return halves


def pack_bits(codes: NDArray[np.int8], bits: int) -> bytes:
    """Pack codes in so many bits each, one behind the other, the lowest bit first; the last byte is filled up."""
    bit_rows = np.unpackbits(codes.reshape(-1, 1).view(np.uint8), axis=1, bitorder="little")[:, :bits]
    return np.packbits(bit_rows, bitorder="little").tobytes()


def split_blocks(weights: NDArray[np.int8], bits: int) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Split weights that are codes of so many bits, or such times multipliers, into (codes, multipliers).

    weights: (out, in, size, size), with one multiplier for every GROUP input channels of a filter's tap.
    Result: (out, blocks, in of a block, size, size), (out, blocks, 1, size, size).

    The last block is filled up with zeros. Multipliers are the smallest that are possible; of plain codes 1.
    """
    filters, channels, *window = weights.shape
    size = min(GROUP, channels)
    full = np.pad(weights, ((0, 0), (0, -channels % size), (0, 0), (0, 0))).reshape(filters, -1, size, *window)
    multipliers = np.zeros((filters, full.shape[1], 1, *window), np.int8)
    for multiplier in range(largest_multiplier(bits), 0, -1):
        is_divisible = (np.abs(full) <= multiplier * ((1 << bits - 1) - 1)) & (full % multiplier == 0)
        multipliers[is_divisible.all(axis=2, keepdims=True)] = multiplier
    return full // multipliers, multipliers
