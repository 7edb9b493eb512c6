# SPDX-License-Identifier: MIT
"""How predictions of each task are compared and shown: one row per task of `model.task`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping, Protocol, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.data.dataset import Dataset
from mpnet.evaluation.confusion import classifier_confusion, detector_confusion
from mpnet.messages import counted
from mpnet.model.task import CLASSIFICATION, DETECTION, Task
from mpnet.report.images import ClassGallery, Gallery, LoadImage
from mpnet.report.model import Change, Image
from mpnet.report.paired import ImageScore, Pair, Pairing
from mpnet.report.paired_classes import ClassPairing


class Compares(Protocol):
    """One baseline with any number of runs. intervals_by: where its intervals come from, in words."""

    intervals_by: str

    def pair(self, other: Any) -> Pair:
        """Everything about one run against the baseline."""
        ...


class Shows(Protocol):
    """What two runs made of the images of a data set."""

    def changes(self, changes: Sequence[Any], limit: int, captions: bool = False) -> tuple[Change, ...]:
        """The first `limit` changes with their images. captions: which say which side is which."""
        ...

    def worst(self, scores: Sequence[ImageScore], limit: int) -> tuple[Image, ...]:
        """The images in which the runs differ most."""
        ...


@dataclass(frozen=True)
class View:
    """pairing: of a data set, the baseline's predictions, draws and seed. gallery: of both runs' predictions.

    protocol: how images were made into predictions, for a line in the terminal.
    change:   column heading -> its key in `Change.as_json`, for tables.
    matched:  what makes one right, for a sentence.
    confusion: (n, n) counts of a run's predictions on a data set; nothing: what its last class is, '' where there is none.
    """

    pairing: Callable[[Dataset, Any, int, int], Compares]
    gallery: Callable[[Dataset, Any, Any, LoadImage], Shows]
    protocol: Callable[[Mapping[str, Any]], str]
    change: Mapping[str, str]
    matched: str
    confusion: Callable[[Any, Dataset], NDArray[np.int64]]
    nothing: str = ""


def protocol_text(value: object) -> str:
    """A value of a protocol for people: its metric, which identifies stored results, keeps a word that is no longer used."""
    return str(value).replace(" per picture ", " per image ")


def _images(protocol: Mapping[str, Any]) -> str:
    """How many images, and how many of them only agreement is measured on."""
    unlabelled = protocol.get("unlabelled") or 0
    under = f" under {protocol['condition']}" if protocol.get("condition") else ""
    return f"{counted(protocol['images'])}{under}" + (f" ({unlabelled} without labels: agreement alone)" if unlabelled else "")


def _detector(protocol: Mapping[str, Any]) -> str:
    return (
        f"{_images(protocol)}, {protocol['boxes']} boxes, {protocol['resize']}, confidence "
        f"{protocol['confidence']}, NMS {protocol['nms']} ({protocol['nms_kind']})"
    )


def _classifier(protocol: Mapping[str, Any]) -> str:
    return f"{_images(protocol)} of {protocol['classes']} classes, {protocol['resize']}"


_VIEWS: dict[str, View] = {
    DETECTION.name: View(
        Pairing,
        Gallery,
        _detector,
        {"class": "class", "picture": "picture", "score": "score", "IoU": "iou"},
        "score 0.25 or more, IoU 0.5",
        detector_confusion,
        "nothing",
    ),
    CLASSIFICATION.name: View(
        ClassPairing,
        ClassGallery,
        _classifier,
        {
            "class": "class",
            "picture": "picture",
            "first run": "baseline_class",
            "score": "baseline_score",
            "this run": "other_class",
            "its score": "other_score",
        },
        "right in one run, wrong in the other",
        classifier_confusion,
    ),
}


def view_of(task: Task) -> View:
    """The row of a task."""
    return _VIEWS[task.name]
