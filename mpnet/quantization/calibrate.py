# SPDX-License-Identifier: MIT
"""Range estimators: activations in, batch after batch, a range out.

min_max, percentile, entropy and mse depend on the values alone, not on their order or batches; moving_average takes the
images in the order in which they come.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Mapping

import numpy as np

from mpnet.arrays import RealArray
from mpnet.errors import DataError, PrecisionError
from mpnet.model.quantization import CALIBRATION_METHODS
from mpnet.model.ranges import CalibratedRanges, TensorRange
from mpnet.quantization.histogram import GrowingHistogram
from mpnet.quantization.range_search import entropy_range, mse_range
from mpnet.quantization.scheme import ActivationScheme


@dataclass(frozen=True)
class CalibrationMethod:
    """A method that finds a range.

    method:      min_max: the least and the largest value; moving_average: of the images' least and largest values;
                 percentile: so that `percentile` percent of the values are kept; entropy: the clipping with the least
                 KL divergence between the values and their codes; mse: the one with the least squared error.
    percentile:  percent of the values that stay inside, 50 to 100. A symmetric scheme cuts by magnitude, the others
                 cut half at each end.
    momentum:    weight of the past in moving_average, 0 to below 1.
    Raises: PrecisionError for what does not exist.
    """

    method: str = "min_max"
    percentile: float = 99.99
    momentum: float = 0.9

    def __post_init__(self) -> None:
        if self.method not in CALIBRATION_METHODS:
            known = ", ".join(CALIBRATION_METHODS)
            raise PrecisionError(f"calibration: unknown method {self.method!r}; known are {known}")
        if not 50.0 <= self.percentile <= 100.0:
            raise PrecisionError(f"calibration: percentile is {self.percentile}; it must be 50 to 100")
        if not 0.0 <= self.momentum < 1.0:
            raise PrecisionError(f"calibration: momentum is {self.momentum}; it must be at least 0 and below 1")

    def __str__(self) -> str:
        parameter = {"percentile": self.percentile, "moving_average": self.momentum}.get(self.method)
        return self.method if parameter is None else f"{self.method} {parameter:g}"


class RangeEstimator:
    """An estimator that collects what one tensor holds and answers its range.

    scheme: what the range is for; entropy and mse weigh its codes, percentile its symmetry.
    """

    def __init__(self, method: CalibrationMethod, scheme: ActivationScheme) -> None:
        self.method = method
        self.scheme = scheme
        self.images = 0
        self.minimum = math.inf
        self.maximum = -math.inf
        self._average: tuple[float, float] | None = None
        self._histogram = GrowingHistogram() if method.method in ("percentile", "entropy", "mse") else None

    def observe(self, batch: RealArray) -> None:
        """Take in activations (n, ...) of n images, float32 or float16. Raises: DataError for NaN or infinity."""
        for image in np.asarray(batch):
            if image.size == 0:
                continue
            low, high = float(image.min()), float(image.max())
            if not (math.isfinite(low) and math.isfinite(high)):
                raise DataError("activations hold NaN or infinity")
            self.images += 1
            self.minimum, self.maximum = min(self.minimum, low), max(self.maximum, high)
            if self.method.method == "moving_average":
                past, now = self.method.momentum, 1.0 - self.method.momentum
                old = self._average or (low, high)
                self._average = (past * old[0] + now * low, past * old[1] + now * high)
            if self._histogram is not None:
                self._histogram.observe(image)

    def range(self) -> tuple[float, float]:
        """Return (minimum, maximum) as float32 values. Raises: DataError when nothing was observed."""
        if self.images == 0:
            raise DataError("the calibration set is empty; give it at least one image")
        low, high = self.minimum, self.maximum
        if self._average is not None:
            low, high = self._average
        elif self._histogram is not None:
            if self.method.method == "percentile":
                low, high = _percentile_range(self._histogram, self.method.percentile, self.scheme.is_symmetric)
            else:
                search = entropy_range if self.method.method == "entropy" else mse_range
                low, high = search(self._histogram, self.scheme)
        return float(np.float32(low)), float(np.float32(high))


class Calibrator:
    """The estimators of a network's tensors.

    methods: tensor index -> (method, scheme); names: tensor index -> its name, for messages and files.
    """

    def __init__(self, methods: Mapping[int, tuple[CalibrationMethod, ActivationScheme]], names: Mapping[int, str]) -> None:
        self._estimators = {tensor: RangeEstimator(*methods[tensor]) for tensor in sorted(methods)}
        self._names = names

    def observe(self, tensor: int, batch: RealArray) -> None:
        """Take in (n, ...) activations of a tensor; others than the wanted ones are ignored.

        Raises: DataError naming the tensor for NaN or infinity.
        """
        if tensor not in self._estimators:
            return
        try:
            self._estimators[tensor].observe(batch)
        except DataError as error:
            raise DataError(f"calibration: tensor {tensor} ({self._names.get(tensor, '?')}): {error}") from None

    def result(self, digests: Mapping[str, str]) -> CalibratedRanges:
        """Return the ranges that were found. Raises: DataError naming the tensor that nothing was observed of."""
        ranges = []
        for tensor, estimator in self._estimators.items():
            name = self._names.get(tensor, "?")
            try:
                low, high = estimator.range()
            except DataError as error:
                raise DataError(f"calibration: tensor {tensor} ({name}): {error}") from None
            ranges.append(TensorRange(tensor, name, low, high, estimator.minimum, estimator.maximum, str(estimator.method)))
        images = max((e.images for e in self._estimators.values()), default=0)
        if images == 0:
            raise DataError("calibration: there is no int8 layer to calibrate; use dynamic ranges or assign int8")
        return CalibratedRanges(tuple(ranges), images, dict(digests))


def _percentile_range(histogram: GrowingHistogram, percentile: float, symmetric: bool) -> tuple[float, float]:
    """Return the outer edges of the bins in which the cut falls, so at least `percentile` percent of the values are inside."""
    total = histogram.total
    if symmetric:
        kept = math.ceil(total * (percentile / 100.0))
        reach = (int(np.searchsorted(np.cumsum(histogram.magnitudes()), kept)) + 1) * histogram.width
        return max(-reach, histogram.minimum), min(reach, histogram.maximum)
    cut = math.floor(total * (1.0 - percentile / 100.0) / 2.0)
    sums = np.cumsum(histogram.counts)
    edges = histogram.edges()
    low = edges[int(np.searchsorted(sums, cut, side="right"))]
    high = edges[int(np.searchsorted(sums, total - cut)) + 1]
    return max(float(low), histogram.minimum), min(float(high), histogram.maximum)
