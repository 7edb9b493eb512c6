# SPDX-License-Identifier: MIT
"""Calibrated ranges: what a calibration found, with all that decided it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Mapping

from mpnet.errors import DataError
from mpnet.model.quantization import CALIBRATION_METHODS

IMAGE = -1
"""The number of the tensor that is the image; others are the index of the layer whose result they are."""


@dataclass(frozen=True)
class TensorRange:
    """The range of one tensor.

    tensor:    index of the layer whose result it is; -1 is the image.
    name:      that layer's name, for the reader.
    minimum, maximum: the reals to be represented, as float32 values; minimum <= maximum.
    seen_minimum, seen_maximum: the least and the largest value that the calibration met.
    method:    how the range was found, in words of `CALIBRATION_METHODS`, with its parameters.
    Raises: DataError for a range that is not one.
    """

    tensor: int
    name: str
    minimum: float
    maximum: float
    seen_minimum: float
    seen_maximum: float
    method: str

    def __post_init__(self) -> None:
        where = f"range of tensor {self.tensor} ({self.name})"
        pairs = (("", self.minimum, self.maximum), ("seen ", self.seen_minimum, self.seen_maximum))
        for what, low, high in pairs:
            if not (math.isfinite(low) and math.isfinite(high)):
                raise DataError(f"{where}: {what}[{low}, {high}] is not finite; calibrate again")
            if low > high:
                raise DataError(f"{where}: {what}min {low} > max {high}; calibrate again")
        if self.method.split(" ")[0] not in CALIBRATION_METHODS:
            known = ", ".join(CALIBRATION_METHODS)
            raise DataError(f"{where}: unknown method {self.method!r}; known are {known}")


@dataclass(frozen=True)
class CalibratedRanges:
    """The ranges of a network's tensors.

    tensors:  one per calibrated tensor, by index.
    images:   number of calibration images.
    digests:  SHA-256 (hex) of what decided them: `network`, `weights`, `data`, `options`.
    """

    tensors: tuple[TensorRange, ...]
    images: int
    digests: Mapping[str, str]

    def __post_init__(self) -> None:
        if self.images < 1:
            raise DataError(f"ranges: calibrated on {self.images} images; give at least one")
        indices = [t.tensor for t in self.tensors]
        if len(set(indices)) != len(indices):
            twice = next(i for i in indices if indices.count(i) > 1)
            raise DataError(f"ranges: tensor {twice} has two ranges; calibrate again")

    def by_tensor(self) -> dict[int, tuple[float, float]]:
        """Return (minimum, maximum) by tensor index, as the engine's options take them."""
        return {t.tensor: (t.minimum, t.maximum) for t in self.tensors}

    def check_made_for(self, digests: Mapping[str, str]) -> None:
        """Check what these ranges were made for. Raises: DataError naming what differs."""
        for what, digest in digests.items():
            if self.digests.get(what) != digest:
                made_for = self.digests.get(what, "none")
                raise DataError(f"ranges: made for other {what} ({made_for[:12]}, not {digest[:12]}); calibrate again")
