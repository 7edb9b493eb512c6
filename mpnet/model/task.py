# SPDX-License-Identifier: MIT
"""The tasks of networks, one row each: which data fits it, which measures apply, what people call its findings.

Everything else asks a row: experiments which formats and defaults there are, sweeps their objectives, reports their words.
`trial.task` holds what each row does: from output tensors to findings, measures and files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping


@dataclass(frozen=True)
class Task:
    """One purpose.

    name:       as protocols have it. a: such a network, with its article.
    formats:    of labelled data. resize: how images are fitted when nobody says.
    quality:    the measure of accuracy that counts first; per_class: the measures of a class, that one first.
    agreement:  the measure of agreement with the baseline that counts first.
    objective:  the quality that a sweep looks for when nobody says and there is a baseline.
    thing:      what one configuration finds and another does not. agrees: how far it agrees with a baseline, to be filled in.
    file:       of a result, which keeps what was found. key: of what was found in an image, in documents.
    """

    name: str
    a: str
    formats: tuple[str, ...]
    resize: str
    quality: str
    per_class: tuple[str, ...]
    agreement: str
    objective: str
    thing: str
    agrees: str
    file: str
    key: str

    def objectives(self, baseline: bool, latency: bool = False, labelled: bool = True) -> tuple[str, ...]:
        """Return the objectives of a sweep that names none.

        baseline: whether there is one to agree with; latency: whether there is a table; labelled: whether any image has labels.
        """
        quality = self.quality if not baseline else self.objective if labelled else self.agreement
        return (quality, "latency_ms" if latency else "bit_operations")


DETECTION = Task(
    "detection",
    "a detector",
    ("yolo", "coco", "darknet", "ultralytics"),
    "stretch",
    "AP",
    ("AP", "AP50"),
    "agreement_AP",
    "AP",
    "object",
    "'s detections to {:.2f} AP",
    "detections.json",
    "detections",
)
# Agreement bounds the loss: top-1 cannot fall by more than the share of images whose best class changes.
CLASSIFICATION = Task(
    "classification",
    "a classifier",
    ("imagefolder", "list"),
    "crop",
    "top1",
    ("top1", "top5"),
    "agreement_top1",
    "agreement_top1",
    "image",
    " on {:.2f} % of the images",
    "predictions.json",
    "classes",
)
TASKS: dict[str, Task] = {task.name: task for task in (DETECTION, CLASSIFICATION)}


def task_of_protocol(protocol: Mapping[str, Any]) -> Task:
    """Return the task of what was measured under a protocol; one that names none is a detector's."""
    return TASKS.get(str(protocol.get("task")), DETECTION)
