# SPDX-License-Identifier: MIT
"""The differences of two configurations: classes, objects or images that one of them gets right, intervals of every measure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.evaluation.compare import Interval
from mpnet.messages import few
from mpnet.report.data.words import clean

FEW = 3
"""Objects of a class up to which one of them makes tens of points of its AP."""
FEW_NAMED = 8


def is_few(count: int) -> bool:
    """Return whether a class has so few objects that its difference is told and not ranked."""
    return 0 < count <= FEW


def few_classes_text(classes: Sequence[tuple[str, int]], thing: str) -> str:
    """Say which classes are not ranked, since they have few objects; '' for none. classes: names and numbers of objects."""
    if not classes:
        return ""
    names = few([f"{clean(name)} ({count})" for name, count in classes], FEW_NAMED)
    several = "classes have" if len(classes) > 1 else "class has"
    return (
        f"{len(classes)} {several} at most {FEW} {thing}s, so that one more or less makes tens of points, and "
        f"{'are' if len(classes) > 1 else 'is'} not ranked: {names}."
    )


@dataclass(frozen=True)
class ClassRow:
    """One class: metrics of baseline and chosen configuration, percent.

    interval: of the difference of the task's quality.
    """

    name: str
    truths: int
    baseline: Mapping[str, float]
    chosen: Mapping[str, float]
    interval: Interval | None = None

    @property
    def is_few(self) -> bool:
        """Return whether it has so few objects that its difference is told and not ranked."""
        return is_few(self.truths)


KINDS = ("lost", "moved", "gained")
"""What can become of an object: moved ones are detected, but their box fits less than is asked for."""


@dataclass(frozen=True)
class Change:
    """A thing that one configuration gets right and the other does not.

    kind: one of KINDS. name: the true class. score: of the side that is right.
    jpeg: its image. file: where that was written, '' where it was not.
    """

    kind: str
    image: str
    name: str
    score: float
    jpeg: bytes | None = field(default=None, kw_only=True)
    file: str = field(default="", kw_only=True)

    @property
    def details(self) -> str:
        """Return the details of it, in a few words."""
        raise NotImplementedError

    @property
    def order(self) -> tuple[int, float]:
        """Return the key that sorts changes by kind, the highest scores first."""
        return KINDS.index(self.kind), -self.score

    def columns(self) -> dict[str, object]:
        """Return the change as a row of a data file: value by column name."""
        return {"kind": self.kind, "class": self.name, "picture": Path(self.image).name, "score": self.score}

    def as_json(self) -> dict[str, object]:
        """Return the change as documents of `compare --json` hold it."""
        return {**self._json_values(), **({"file": self.file} if self.file else {})}

    def _json_values(self) -> dict[str, object]:
        return self.columns()


@dataclass(frozen=True)
class ObjectChange(Change):
    """An object that one configuration finds and the other does not.

    overlap: IoU of the detection that exists with the truth. box: truth, (x0, y0, x1, y1) in pixels of the image.
    size:    of the truth, as COCO has it: small, medium or large.
    explained, shares: which layers lose it, in a sentence, and the share of each by its name, percent; empty where unknown.
    """

    overlap: float
    box: tuple[float, float, float, float]
    size: str = ""
    explained: str = ""
    shares: tuple[tuple[str, float], ...] = ()

    @property
    def details(self) -> str:
        """Return the details of it, in a few words."""
        return f"{self.size + ' · ' if self.size else ''}score {self.score:.2f} · IoU {self.overlap:.2f}"

    def columns(self) -> dict[str, object]:
        """Return the change as a row of a data file: value by column name."""
        corners = zip(("x0", "y0", "x1", "y1"), self.box, strict=True)
        return {**super().columns(), "size": self.size, "iou": self.overlap, **dict(corners)}

    def _json_values(self) -> dict[str, object]:
        return {**super().columns(), "size": self.size, "iou": self.overlap, "box": list(self.box)}


@dataclass(frozen=True)
class Guess:
    """A class that a network gives an image, and its score."""

    name: str
    score: float


@dataclass(frozen=True)
class ImageChange(Change):
    """An image whose class one configuration gets right and the other does not.

    before: the baseline's best class. after: the other's.
    """

    before: Guess
    after: Guess

    @property
    def details(self) -> str:
        """Return the details of it, in a few words."""
        return f"{self.before.name} {self.before.score:.2f} → {self.after.name} {self.after.score:.2f}"

    def columns(self) -> dict[str, object]:
        """Return the change as a row of a data file: value by column name."""
        sides = (("baseline", self.before), ("other", self.after))
        return {
            **super().columns(),
            **{
                f"{side}_{key}": value
                for side, guess in sides
                for key, value in (("class", guess.name), ("score", guess.score))
            },
        }


@dataclass(frozen=True, eq=False)
class Confusion:
    """Counts of which class is taken for which: int64 (n, n), rows the truth, columns what is found.

    names: of the n classes; of a detector the last is nothing: not found, or no object there.
    """

    names: tuple[str, ...]
    baseline: NDArray[np.int64]
    chosen: NDArray[np.int64]


@dataclass(frozen=True)
class ImageTriple:
    """One image three times: truth, baseline, chosen; each a JPEG. score: agreement of the two, percent."""

    name: str
    caption: str
    truth: bytes
    baseline: bytes
    chosen: bytes


@dataclass(frozen=True)
class ImageScore:
    """The difference of two runs on one image.

    position: in the data set. lost: moved objects included. doubts: sum of the scores of detections that one run alone has.
    """

    position: int
    lost: int
    gained: int
    doubts: float


@dataclass(frozen=True)
class RunDifferences:
    """One run against the baseline.

    metrics: intervals of the differences of AP, AP50, AP75, AR100, AP_small ..., agreement_AP, AP75 and AP95; of classifiers of
             top1, top5, agreement_top1. values: the run's own. images: by how much they differ.
    verdict: what a test says, '' where there is none.
    """

    metrics: dict[str, Interval]
    values: dict[str, float]
    classes: tuple[ClassRow, ...]
    changes: tuple[Change, ...]
    images: tuple[ImageScore, ...]
    verdict: str = ""
