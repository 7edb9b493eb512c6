# SPDX-License-Identifier: MIT
"""Calibration statistics from an experiment's images: computed when asked for, cached for other processes."""

from __future__ import annotations

import threading
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from mpnet.config.identity import digest_of
from mpnet.engine.calibration_statistics import CalibrationStatistics, Rounded, StoredStatistics
from mpnet.engine.observe import channel_means, input_products
from mpnet.engine.prepare import Prepared
from mpnet.formats.files.cache import FileCache
from mpnet.quantization.learnt_rounding import MOST_INPUTS, VERSION, learn_codes
from mpnet.quantization.weights import WeightScheme

PRODUCT_BYTES = 1 << 30
"""Covariances that are kept at a time; what needs more takes several passes over the images."""


@dataclass(frozen=True, eq=False)
class CalibrationImages:
    """The images that statistics are taken from.

    digest: SHA-256 (hex) of their files. evaluated: names of those that the data set evaluates as well.
    batches: starts a pass over all of them, float32 (n, height, width, channels).
    """

    digest: str
    evaluated: tuple[str, ...]
    batches: Callable[[], Iterator[NDArray[np.float32]]]


class ImageStatistics(CalibrationStatistics):
    """images: asked for once. prepared: the network whose inputs are measured, in fp32.

    decides: what changes fp32 activations besides images, weights and network, as plain values.
    """

    def __init__(
        self,
        images: Callable[[], CalibrationImages],
        prepared: Prepared,
        decides: object,
        threads: int,
        cache: FileCache | None,
    ) -> None:
        self._open_images, self._prepared, self._decides = images, prepared, decides
        self._threads, self._cache = threads, cache
        self._covariances: dict[int, tuple[NDArray[np.float64], int]] = {}
        self._lock = threading.Lock()

    @cached_property
    def _images(self) -> CalibrationImages:
        return self._open_images()

    @cached_property
    def digest(self) -> str:
        """Return the digest of the images and of what decides the statistics."""
        return digest_of({"version": VERSION, "pictures": self._images.digest, "decides": self._decides})

    @property
    def evaluated_images(self) -> tuple[str, ...]:
        """Return the names of the calibration images that the data set evaluates as well."""
        return self._images.evaluated

    @cached_property
    def _means(self) -> dict[int, NDArray[np.float64]]:
        return channel_means(self._prepared, self._images.batches(), self._threads, weighed=True)

    def means(self, layer: int) -> NDArray[np.float64]:
        """Return the mean of each input channel of a convolution, float64 (channels,)."""
        with self._lock:
            return self._means[layer]

    def rounded(self, layer: int, scheme: WeightScheme) -> Rounded:
        """Return a convolution's codes and scales by a scheme whose rounding is learnt, from the cache where it holds them."""
        weights = self._prepared.folded[layer].weights
        key = digest_of({"lessons": self.digest, "layer": layer, "scheme": list(astuple(scheme))})
        cached = None if self._cache is None else self._cache.load(key)
        if cached is not None and len(cached) == 2 and cached[0].size == weights.size and cached[1].size == 4 * len(weights):
            return cached[0].view(np.int8).reshape(weights.shape).copy(), cached[1].view(np.float32).copy()
        with self._lock:
            covariance, positions = self._covariance(layer)
        codes, scales = learn_codes(weights, covariance, scheme, positions)
        if self._cache is not None:
            self._cache.store(key, [codes, scales])
        return codes, scales

    def stored(self, learnt: Iterable[tuple[int, WeightScheme]]) -> StoredStatistics:
        """Return the means, and the weights of layers rounded by these schemes, for other processes."""
        rounded = {pair: self.rounded(*pair) for pair in learnt}
        with self._lock:
            return StoredStatistics(self.digest, self._means, rounded)

    def _covariance(self, layer: int) -> tuple[NDArray[np.float64] | None, int]:
        """Return the covariance of a layer's inputs and how many positions it has; None where its filters read too many inputs.

        As many other layers as fit into PRODUCT_BYTES are measured in the same pass.
        """
        if layer not in self._covariances:
            depths = {
                convolution.index: convolution.weight_count // convolution.filters
                for convolution in self._prepared.network.convolutions
            }
            if depths[layer] > MOST_INPUTS:
                return None, 0
            groups = {convolution.index: convolution.groups for convolution in self._prepared.network.convolutions}
            room = PRODUCT_BYTES
            measured_layers: list[int] = []
            for index in [layer, *(index for index in depths if index > layer), *(index for index in depths if index < layer)]:
                size = 8 * depths[index] ** 2 * groups[index]
                if depths[index] <= MOST_INPUTS and (size <= room or not measured_layers):
                    room -= size
                    measured_layers.append(index)
            self._covariances = input_products(self._prepared, self._images.batches, measured_layers, self._threads)
        return self._covariances[layer]
