# SPDX-License-Identifier: MIT
"""The comparison and drawing of predictions: one row per task of `model.task`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Protocol, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.data.dataset import Dataset
from mpnet.evaluation.confusion import classifier_confusion, detector_confusion
from mpnet.model.task import CLASSIFICATION, DETECTION, Task
from mpnet.report.collect.class_pairs import ClassPairing
from mpnet.report.collect.detection_pairs import Pairing
from mpnet.report.collect.images import ClassGallery, Gallery, LoadImage
from mpnet.report.data.differences import Change, ImageScore, ImageTriple, RunDifferences


class Compares(Protocol):
    """One baseline with any number of runs. intervals_by: where its intervals come from, in words."""

    intervals_by: str

    def pair(self, other: Any) -> RunDifferences:
        """Compare one run with the baseline."""
        ...


class Shows(Protocol):
    """The predictions of two runs for the images of a data set."""

    def changes(self, changes: Sequence[Any], limit: int, captions: bool = False) -> tuple[Change, ...]:
        """Return the changes, the first `limit` with images. captions: whether these say which side is which."""
        ...

    def worst(self, scores: Sequence[ImageScore], limit: int) -> tuple[ImageTriple, ...]:
        """Return the images in which the runs differ most."""
        ...


@dataclass(frozen=True)
class PredictionTools:
    """The functions that compare and draw the predictions of one task.

    pairing:   of a data set, the baseline's predictions, draws and seed.
    gallery:   of a data set, the predictions of both runs, and a function that loads images.
    confusion: (n, n) counts of a run's predictions on a data set.
    """

    pairing: Callable[[Dataset, Any, int, int], Compares]
    gallery: Callable[[Dataset, Any, Any, LoadImage], Shows]
    confusion: Callable[[Any, Dataset], NDArray[np.int64]]


_VIEWS: dict[str, PredictionTools] = {
    DETECTION.name: PredictionTools(Pairing, Gallery, detector_confusion),
    CLASSIFICATION.name: PredictionTools(ClassPairing, ClassGallery, classifier_confusion),
}


def prediction_tools(task: Task) -> PredictionTools:
    """Return the row of a task."""
    return _VIEWS[task.name]
