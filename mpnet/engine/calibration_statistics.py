# SPDX-License-Identifier: MIT
"""Calibration statistics: weights with learnt rounding, and input means of layers whose weights have fewer than eight bits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.quantization.weights import WeightScheme

Rounded = tuple[NDArray[np.int8], NDArray[np.float32]]
"""Codes and scales of a layer's weights, as quantize_weights gives them."""


class CalibrationStatistics(ABC):
    """Means and roundings may be computed when they are asked for. Raises: DataError, EngineError where that fails."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """Return the SHA-256 (hex) of everything that decides the statistics."""

    @abstractmethod
    def means(self, layer: int) -> NDArray[np.float64]:
        """Return the mean of each input channel of a convolution, float64 (channels,)."""

    @abstractmethod
    def rounded(self, layer: int, scheme: WeightScheme) -> Rounded:
        """Return a convolution's codes and scales by a scheme whose rounding is learnt."""


@dataclass(frozen=True, eq=False)
class StoredStatistics(CalibrationStatistics):
    """Statistics that were all computed before; they can go to other processes.

    stored_digest: the digest of the statistics that they were taken from.
    """

    stored_digest: str
    all_means: Mapping[int, NDArray[np.float64]]
    all_rounded: Mapping[tuple[int, WeightScheme], Rounded]

    @property
    def digest(self) -> str:
        """Return the digest that was stored with the statistics."""
        return self.stored_digest

    def means(self, layer: int) -> NDArray[np.float64]:
        """Return the mean of each input channel of a convolution, float64 (channels,)."""
        return self.all_means[layer]

    def rounded(self, layer: int, scheme: WeightScheme) -> Rounded:
        """Return the stored codes and scales of a convolution."""
        return self.all_rounded[layer, scheme]


@dataclass(frozen=True, eq=False)
class RenumberedStatistics(CalibrationStatistics):
    """Statistics of a part of a network: its layer n is layer numbers[n] of the original."""

    original: CalibrationStatistics
    numbers: Mapping[int, int]

    @property
    def digest(self) -> str:
        """Return the digest of the original statistics."""
        return self.original.digest

    def means(self, layer: int) -> NDArray[np.float64]:
        """Return the means of the layer under its original number."""
        return self.original.means(self.numbers[layer])

    def rounded(self, layer: int, scheme: WeightScheme) -> Rounded:
        """Return the codes and scales of the layer under its original number."""
        return self.original.rounded(self.numbers[layer], scheme)
