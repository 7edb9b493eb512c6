# SPDX-License-Identifier: MIT
"""The interface of a task: from output tensors to predictions, their measures, and the file that keeps them.

Predictions are what a network says of a set of images: `Detections` or `Classifications`. `trial.detection` and
`trial.classification` have a `Kit` each; `trial.task` finds the kit of a network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Collection, Generic, Protocol, Sequence, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpnet.config.experiment import Experiment
from mpnet.config.measures import AGREEMENT, names_of
from mpnet.data.classifications import Classifications
from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections
from mpnet.detection.decode import Candidates
from mpnet.evaluation.compare import Interval
from mpnet.evaluation.noninferiority import Losses
from mpnet.json_values import JsonObject
from mpnet.model.network import NetworkSpec
from mpnet.model.task import Task
from mpnet.trial.run_result import BaselineAgreement, ClassResult

Predictions: TypeAlias = "Detections | Classifications"
Decoded: TypeAlias = "Candidates | Classifications"
"""What a decoder makes of one output tensor, before those of several are joined."""
F = TypeVar("F")
F_co = TypeVar("F_co", covariant=True)
F_contra = TypeVar("F_contra", contravariant=True)


def detections_of(predictions: Predictions) -> Detections:
    """Return a detector's predictions, which callers know to be detections. Raises: TypeError for others."""
    if not isinstance(predictions, Detections):
        raise TypeError(f"{type(predictions).__name__} are no detections")
    return predictions


class Decoder(Protocol[F_co]):
    """The decoder from output tensors to predictions; workers of sweeps get a copy."""

    def decode(self, output: int, tensor: NDArray[np.float32], geometry: NDArray[np.float32]) -> Decoded:
        """Decode one output tensor, (n, h, w, c), of a few images.

        geometry: (n, 4), see `geometry_array`.
        """
        ...

    def of_images(self, positions: NDArray[np.intp]) -> Decoder[F_co]:
        """Return the decoder of these images alone, in this order."""
        ...

    def join(self, parts: Sequence[Any], order: NDArray[np.intp] | None = None) -> Decoded:
        """Join what `decode` said of consecutive groups of images. order: of the images, None: as they come."""
        ...

    def predictions(self, outputs: Sequence[Any]) -> F_co:
        """Return the predictions from what all outputs of one configuration say.

        Of several configurations, whose outputs are joined one after the other, their predictions are joined in the same way.
        """
        ...


class Meter(Protocol[F_contra]):
    """A meter of any number of predictions on one data set; what only data and baseline decide is made once."""

    def values(self, predictions: F_contra, requested: Collection[str] | None = None) -> dict[str, float]:
        """Return the accuracy and, with a baseline, agreement by name, in percent; -1 where there is nothing to measure.

        requested: of the measures that take time, those that are asked for; None: all.
        """
        ...


class UpperBounds(Protocol[F_contra]):
    """The most that the task's quality and agreement can still be of predictions that are known for part of the images.

    order: positions of the images in the order in which they are looked at.
    """

    order: NDArray[np.intp]

    def evidence(self, predictions: F_contra, first: int, last: int) -> Sequence[Any]:
        """Return what `most` needs to know of the predictions in the images first .. last - 1 of `order`.

        They are of several configurations, one after the other; so is the evidence.
        """
        ...

    def most(self, runs: Sequence[Sequence[Any]]) -> dict[str, NDArray[np.float64]]:
        """Return the upper bounds of configurations by measure, percent, float64 (configurations,).

        runs: of each the evidence of consecutive groups of images, the same groups for all, from the first of `order` on. The
        measure of all images cannot exceed these.
        """
        ...


@dataclass(frozen=True, eq=False)
class Compared:
    """A run against the baseline on some images.

    quality: the paired difference of the task's quality with its 95 % interval, None without labels.
    losses:  of quality and agreement, as far as something can be said of them.
    drawn:   agreement in percent on images drawn again, float64 (draws,), the same draws for every run; NaN where there is
             nothing to agree with.
    """

    quality: Interval | None
    losses: Losses
    drawn: NDArray[np.float64]


@dataclass(frozen=True)
class Kit(Generic[F]):
    """All that is done for one task.

    decoder:   for a network and data set, as the experiment wants it.
    protocol:  what of its protocol is the task's own, for `protocol` of results.
    meter:     of a data set, and of the baseline's predictions for agreement.
    image_order: of a data set, the baseline's predictions, some of the task's quality and agreement by name, and what a sample
               of configurations finds in all images, one after the other: positions of the images, those that lose most first.
    upper_bounds:  of the first three; the last: the order in which images are looked at, None: by what the baseline finds.
    measure:   the `metrics` and the `per_class` of a result.
    loss:      of a data set and the baseline's predictions: what another run loses, see `Compared`.
    gain:      of a data set and the predictions of a baseline and two runs: how much more the second run agrees with the
               baseline than the first, percent points, paired over the images.
    intervals_by: where the interval of `loss` comes from, in words.
    to_json, read: the file that a result keeps.
    """

    task: Task
    decoder: Callable[[Experiment, NetworkSpec, Dataset], Decoder[F]]
    protocol: Callable[[Experiment, NetworkSpec, Dataset], JsonObject]
    meter: Callable[[Dataset, F | None], Meter[F]]
    image_order: Callable[[Dataset, F | None, Collection[str], F], NDArray[np.intp]]
    upper_bounds: Callable[[Dataset, F | None, Collection[str], NDArray[np.intp] | None], UpperBounds[F]]
    measure: Callable[[F, Dataset], tuple[dict[str, float], list[ClassResult]]]
    loss: Callable[[Dataset, F], Callable[[F], Compared]]
    gain: Callable[[Dataset, F, F, F], Interval]
    intervals_by: str
    to_json: Callable[[F, Dataset], bytes]
    read: Callable[[Path, Dataset], F]

    def agreement(
        self, baseline: F, predictions: F, dataset: Dataset, trial: str, outputs_db: Sequence[float]
    ) -> BaselineAgreement:
        """Return the agreement of a result with the baseline of this trial id: measures, and SQNR of each output.

        An output that equals the baseline's bit for bit has no error to compare with: its SQNR is None.
        """
        values = self.meter(dataset, baseline).values(predictions, ())
        return BaselineAgreement(
            trial,
            {name.removeprefix(AGREEMENT): values[name] for name in names_of("agreement", task=self.task)},
            tuple(value if math.isfinite(value) else None for value in outputs_db),
        )
