# SPDX-License-Identifier: MIT
"""Prepared weights kept on disk: what decides their bytes is their key, so that a stale entry is never found."""

from __future__ import annotations

import functools
import os
from dataclasses import astuple

import numpy as np
from numpy.typing import NDArray

from mpnet import __version__
from mpnet.config.identity import ARITHMETIC_VERSION, digest_of
from mpnet.engine.operations import Convolve, IntegerConvolve
from mpnet.formats.files.cache import FileCache
from mpnet.kernels.core import LIBRARY_PATH, PACK_VERSION
from mpnet.kernels.implementation import Kernels
from mpnet.kernels.interface import ConvShape, PackedConv
from mpnet.model.network import ConvolutionSpec, NetworkSpec
from mpnet.model.weights import Weights
from mpnet.quantization.equalise import ChannelFactors

Floats = NDArray[np.float32]


class PreparedCache:
    """The entries of one network's weights under one folding and equalisation, for one table of kernels."""

    def __init__(
        self,
        cache: FileCache,
        network: NetworkSpec,
        weights: Weights,
        kernels: Kernels,
        batch_norm: str,
        equalise: bool | ChannelFactors,
    ) -> None:
        self._cache = cache
        self._kernels = kernels
        # Where a layer's values lie in the file hangs on all layers before it; equalisation on how layers are joined.
        geometry = [[layer.index, layer.kind, layer.parameters, *layer.in_shape] for layer in network.layers] + [
            [layer.batch_normalize, layer.load_scales, layer.shares, layer.flipped, *layer.weight_shape]
            for layer in network.convolutions
        ]
        self._common = {
            "weights": weights.digest,
            "network": digest_of(geometry) if equalise is False else network.digest,
            "batch_norm": batch_norm,
            "equalise": equalisation_digest(equalise),
            "table": kernels.name,
            "program": _program(),
        }

    def key(self, operation: Convolve, layer: ConvolutionSpec, statistics: str | None) -> str:
        """Return the SHA-256 (hex) of all that decides an entry. statistics: digest of the calibration statistics in it."""
        return digest_of(
            {
                **self._common,
                "layer": operation.layer,
                "precision": operation.precision.name,
                "weight_scheme": None if operation.weights is None else astuple(operation.weights),
                "corrected": statistics,
                "in_shape": layer.kernel_input,
                **({"whole": [operation.codes, operation.result]} if isinstance(operation, IntegerConvolve) else {}),
                "geometry": [layer.stride, layer.padding, layer.dilation, layer.groups],
            }
        )

    def load(self, key: str, shape: ConvShape, operation: Convolve) -> tuple[PackedConv, Floats, Floats | None] | None:
        """Return (packed weights, bias, scales of quantised weights); None when there is no whole entry that fits."""
        blocks = self._cache.load(key)
        if blocks is None or len(blocks) != (2 if operation.weights is None else 3):
            return None
        packed = self._kernels.adopt_packed(shape, operation.precision, blocks[0])
        if packed is None or any(block.size != 4 * shape.out_channels for block in blocks[1:]):
            return None
        bias, *scale = (block.view(np.float32) for block in blocks[1:])
        return packed, bias, scale[0] if scale else None

    def store(self, key: str, packed: PackedConv, bias: Floats, scale: Floats | None) -> None:
        """Keep what was prepared; does nothing where that is impossible."""
        self._cache.store(key, [packed.data, bias, *([] if scale is None else [scale])])


def equalisation_digest(equalise: bool | ChannelFactors) -> bool | str:
    """Describe in a digest's document how a network is equalised: SHA-256 (hex) of the factors where there are any."""
    if isinstance(equalise, bool):
        return equalise
    return digest_of({str(index): np.frexp(factors)[1].tolist() for index, factors in sorted(equalise.items())})


@functools.cache
def _program() -> list[str | int]:
    """Return what the bytes depend on: release, arithmetic, order of packed weights, and the very build of the core."""
    core = os.stat(LIBRARY_PATH)
    return [__version__, ARITHMETIC_VERSION, PACK_VERSION, core.st_size, core.st_mtime_ns]
