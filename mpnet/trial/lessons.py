"""Lessons from an experiment's calibration images: computed when asked for, kept in the cache for other processes."""

from __future__ import annotations

import threading
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from mpnet.config.identity import digest_of
from mpnet.engine.lessons import Lessons, Rounded, WrittenLessons
from mpnet.engine.observe import channel_means, input_products
from mpnet.engine.prepare import Prepared
from mpnet.formats.files.cache import FileCache
from mpnet.quantization.learnt_rounding import MOST_INPUTS, VERSION, learn_codes
from mpnet.quantization.weights import WeightScheme

PRODUCT_BYTES = 1 << 30
"""Covariances that are kept at a time; what needs more takes several passes over the images."""


@dataclass(frozen=True, eq=False)
class Shown:
    """Images to learn from. evaluated: names of those that are images of the data set as well; batches: a pass over all."""

    digest: str
    evaluated: tuple[str, ...]
    batches: Callable[[], Iterator[NDArray[np.float32]]]


class ImageLessons(Lessons):
    """images: asked for once. prepared: the network that looks at them.

    decides: what changes fp32 activations besides images, weights and network, as plain values.
    """

    def __init__(
        self, images: Callable[[], Shown], prepared: Prepared, decides: object, threads: int, cache: FileCache | None
    ) -> None:
        self._bring, self._prepared, self._decides = images, prepared, decides
        self._threads, self._cache = threads, cache
        self._covariances: dict[int, tuple[NDArray[np.float64], int]] = {}
        self._looking = threading.Lock()

    @cached_property
    def _images(self) -> Shown:
        return self._bring()

    @cached_property
    def digest(self) -> str:
        return digest_of({"version": VERSION, "pictures": self._images.digest, "decides": self._decides})

    @property
    def shown(self) -> tuple[str, ...]:
        """Names of the data set's images that taught."""
        return self._images.evaluated

    @cached_property
    def _means(self) -> dict[int, NDArray[np.float64]]:
        return channel_means(self._prepared, self._images.batches(), self._threads, weighed=True)

    def means(self, layer: int) -> NDArray[np.float64]:
        with self._looking:
            return self._means[layer]

    def rounded(self, layer: int, scheme: WeightScheme) -> Rounded:
        weights = self._prepared.folded[layer].weights
        key = digest_of({"lessons": self.digest, "layer": layer, "scheme": list(astuple(scheme))})
        kept = None if self._cache is None else self._cache.load(key)
        if kept is not None and len(kept) == 2 and kept[0].size == weights.size and kept[1].size == 4 * len(weights):
            return kept[0].view(np.int8).reshape(weights.shape).copy(), kept[1].view(np.float32).copy()
        with self._looking:
            covariance, positions = self._covariance(layer)
        codes, scales = learn_codes(weights, covariance, scheme, positions)
        if self._cache is not None:
            self._cache.store(key, [codes, scales])
        return codes, scales

    def written(self, learnt: Iterable[tuple[int, WeightScheme]]) -> WrittenLessons:
        """The means, and layers rounded by these schemes, for other processes."""
        rounded = {pair: self.rounded(*pair) for pair in learnt}
        with self._looking:
            return WrittenLessons(self.digest, self._means, rounded)

    def _covariance(self, layer: int) -> tuple[NDArray[np.float64] | None, int]:
        """Of a layer and of as many after it as fit, and its positions; None for one whose filters read too much."""
        if layer not in self._covariances:
            depths = {own.index: own.weight_count // own.filters for own in self._prepared.network.convolutions}
            if depths[layer] > MOST_INPUTS:
                return None, 0
            groups = {own.index: own.groups for own in self._prepared.network.convolutions}
            room = PRODUCT_BYTES
            chosen: list[int] = []
            for index in [layer, *(index for index in depths if index > layer), *(index for index in depths if index < layer)]:
                size = 8 * depths[index] ** 2 * groups[index]
                if depths[index] <= MOST_INPUTS and (size <= room or not chosen):
                    room -= size
                    chosen.append(index)
            self._covariances = input_products(self._prepared, self._images.batches, chosen, self._threads)
        return self._covariances[layer]
