"""What calibration images teach about layers whose weights have fewer than eight bits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.quantization.weights import WeightScheme

Rounded = tuple[NDArray[np.int8], NDArray[np.float32]]
"""Codes and scales of a layer's weights, as quantize_weights gives them."""


class Lessons(ABC):
    """Answers may be computed when they are asked for. Raises: DataError, EngineError where that fails."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """SHA-256 (hex) of everything that decides them."""

    @abstractmethod
    def means(self, layer: int) -> NDArray[np.float64]:
        """Of each input channel of a convolution."""

    @abstractmethod
    def rounded(self, layer: int, scheme: WeightScheme) -> Rounded:
        """A convolution's weights by a scheme whose rounding is learnt."""


@dataclass(frozen=True, eq=False)
class WrittenLessons(Lessons):
    """All that will be asked, computed before; goes to other processes."""

    said: str
    all_means: Mapping[int, NDArray[np.float64]]
    all_rounded: Mapping[tuple[int, WeightScheme], Rounded]

    @property
    def digest(self) -> str:
        return self.said

    def means(self, layer: int) -> NDArray[np.float64]:
        return self.all_means[layer]

    def rounded(self, layer: int, scheme: WeightScheme) -> Rounded:
        return self.all_rounded[layer, scheme]


@dataclass(frozen=True, eq=False)
class RenumberedLessons(Lessons):
    """The same about a network whose layer n is layer numbers[n] of the one that they are about."""

    original: Lessons
    numbers: Mapping[int, int]

    @property
    def digest(self) -> str:
        return self.original.digest

    def means(self, layer: int) -> NDArray[np.float64]:
        return self.original.means(self.numbers[layer])

    def rounded(self, layer: int, scheme: WeightScheme) -> Rounded:
        return self.original.rounded(self.numbers[layer], scheme)
