# SPDX-License-Identifier: MIT
"""The words of reports about the predictions of each task: one row per task of `model.task`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Mapping

from mpnet.json_values import JsonObject
from mpnet.messages import counted
from mpnet.model.task import CLASSIFICATION, DETECTION, Task
from mpnet.trial.run_result import count_images


@dataclass(frozen=True)
class TaskWords:
    """The words of one task.

    protocol: how images were made into predictions, for a line in the terminal.
    change:   column heading -> its key in `Change.as_json`, for tables.
    matched:  what makes one right, for a sentence.
    nothing:  what the last class of a confusion matrix is, '' where it is a class like the others.
    """

    protocol: Callable[[JsonObject], str]
    change: Mapping[str, str]
    matched: str
    nothing: str = ""


def protocol_text(value: object) -> str:
    """Return a value of a protocol for people.

    Its metric identifies stored results and so keeps a word that is no longer used.
    """
    return str(value).replace(" per picture ", " per image ")


def _images(protocol: JsonObject) -> str:
    """Say how many images there are, and on how many of them only agreement is measured."""
    unlabelled = count_images(protocol, "unlabelled")
    condition = f" under {protocol['condition']}" if protocol.get("condition") else ""
    return f"{counted(count_images(protocol))}{condition}" + (
        f" ({unlabelled} without labels: agreement alone)" if unlabelled else ""
    )


def _detector(protocol: JsonObject) -> str:
    return (
        f"{_images(protocol)}, {protocol['boxes']} boxes, {protocol['resize']}, confidence "
        f"{protocol['confidence']}, NMS {protocol['nms']} ({protocol['nms_kind']})"
    )


def _classifier(protocol: JsonObject) -> str:
    return f"{_images(protocol)} of {protocol['classes']} classes, {protocol['resize']}"


_WORDS: dict[str, TaskWords] = {
    DETECTION.name: TaskWords(
        _detector,
        {"class": "class", "image": "picture", "score": "score", "IoU": "iou"},
        "score 0.25 or more, IoU 0.5",
        "nothing",
    ),
    CLASSIFICATION.name: TaskWords(
        _classifier,
        {
            "class": "class",
            "image": "picture",
            "first run": "baseline_class",
            "score": "baseline_score",
            "this run": "other_class",
            "its score": "other_score",
        },
        "right in one run, wrong in the other",
    ),
}


def words_of(task: Task) -> TaskWords:
    """Return the row of a task."""
    return _WORDS[task.name]
