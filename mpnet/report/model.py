# SPDX-License-Identifier: MIT
"""What a report shows, as frozen data: filled by `source` and `collect`, drawn by `page`, `figures` and `terminal`.

Nothing here knows of SQLite, result.json or a network. Metrics are in percent, sizes in bytes, times in
milliseconds, signal-to-noise ratios in dB; "not measured" is NaN in an array and None elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import HELD_OUT, measure
from mpnet.evaluation.compare import Interval
from mpnet.messages import counted
from mpnet.model.task import Task, task_of_protocol

if TYPE_CHECKING:
    from mpnet.report.conditions import ConditionTables
    from mpnet.resolve.configurations import Configurations  # brings sweeps, which a run need not import


@dataclass(frozen=True)
class Layer:
    """One layer of the network.

    position: its place in precision strings, or None for a layer that has none there.
    shape: output (height, width, channels).
    """

    index: int
    kind: str
    name: str
    position: int | None
    shape: tuple[int, ...]
    macs: int
    parameters: int
    selectors: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClassRow:
    """One class: metrics of baseline and chosen configuration, percent, and the interval of the difference of the
    task's quality."""

    name: str
    truths: int
    baseline: Mapping[str, float]
    chosen: Mapping[str, float]
    interval: Interval | None = None


KINDS = ("lost", "moved", "gained")
"""What can become of an object: moved ones are detected, but their box fits less than is asked for."""


@dataclass(frozen=True)
class Change:
    """What one configuration gets right and the other does not.

    kind: one of KINDS. name: the true class. score: of the side that is right.
    """

    kind: str
    image: str
    name: str
    score: float
    jpeg: bytes | None = field(default=None, kw_only=True)

    @property
    def details(self) -> str:
        """What is worth knowing of it, in a few words."""
        raise NotImplementedError

    @property
    def order(self) -> tuple[int, float]:
        """A key that sorts changes by kind, the highest scores first."""
        return KINDS.index(self.kind), -self.score

    def columns(self) -> dict[str, Any]:
        """The change as a row of a data file: value by column name."""
        return {"kind": self.kind, "class": self.name, "picture": Path(self.image).name, "score": self.score}

    def as_json(self) -> dict[str, Any]:
        """The change as documents of `compare --json` hold it."""
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
        return f"{self.size + ' · ' if self.size else ''}score {self.score:.2f} · IoU {self.overlap:.2f}"

    def columns(self) -> dict[str, Any]:
        corners = zip(("x0", "y0", "x1", "y1"), self.box, strict=True)
        return {**super().columns(), "size": self.size, "iou": self.overlap, **dict(corners)}

    def as_json(self) -> dict[str, Any]:
        return {**super().as_json(), "size": self.size, "iou": self.overlap, "box": list(self.box)}


@dataclass(frozen=True)
class Guess:
    """A class that a network gives an image, and its score."""

    name: str
    score: float


@dataclass(frozen=True)
class ImageChange(Change):
    """An image whose class one configuration gets right and the other does not; before: the baseline's, after: the
    other's best class."""

    before: Guess
    after: Guess

    @property
    def details(self) -> str:
        return f"{self.before.name} {self.before.score:.2f} → {self.after.name} {self.after.score:.2f}"

    def columns(self) -> dict[str, Any]:
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
    """Which class is taken for which: int64 (n, n) of baseline and chosen configuration, rows the truth, columns what is
    found. names: of the n classes; of a detector the last is nothing: not found, or no object there."""

    names: tuple[str, ...]
    baseline: NDArray[np.int64]
    chosen: NDArray[np.int64]


@dataclass(frozen=True)
class LayerError:
    """How far one layer's result is from fp32: local (only this layer's rounding) and cumulative.

    noise:     its share, 0 to 1, in the noise at the heads when each layer is lowered alone.
    rmse_over_scale, saturated, low, high, histogram: of the tensor that enters it, as it is rounded to integers; the
    histogram counts fp32 values over equal bins between edges[0] and edges[1]. clip: the range that the integers
    cover when it was calibrated; a dynamic one is that of each image.
    """

    index: int
    name: str
    precision: str
    sqnr_db: float
    local_sqnr_db: float
    cosine: float
    rmse_over_scale: float
    saturated: float
    low: float
    high: float
    histogram: tuple[int, ...] = ()
    edges: tuple[float, float] = (0.0, 0.0)
    clip: tuple[float, float] | None = None
    noise: float = float("nan")


@dataclass(frozen=True)
class LayerPair:
    """Time and bytes of one layer in baseline and chosen configuration; conversions counted to their consumer."""

    index: int
    name: str
    baseline_ms: float
    chosen_ms: float
    baseline_bytes: float
    chosen_bytes: float


@dataclass(frozen=True)
class Image:
    """One image three times: truth, baseline, chosen; each a JPEG. score: agreement of the two, percent."""

    name: str
    caption: str
    truth: bytes
    baseline: bytes
    chosen: bytes


@dataclass(frozen=True)
class Missing:
    """A part that the page cannot show, why, and what would bring it."""

    what: str
    why: str
    remedy: str = ""


@dataclass(frozen=True)
class Pick:
    """A configuration that somebody could take, and why. row: in the table, None when that has other options.

    losses: of the measure `judged` ('': the task's quality), by words that name the images. saves: percent of each of the
    baseline's costs.
    time:   of one image on the machine that swept, in words; '' where it was not measured.
    """

    name: str
    rule: str
    key: str
    row: int | None
    losses: Mapping[str, Interval] = field(default_factory=dict)
    saves: Mapping[str, float] = field(default_factory=dict)
    options: str = ""
    time: str = ""
    judged: str = ""


@dataclass(frozen=True)
class Status:
    """How far a sweep is. state: 'finished', 'running' or 'interrupted'; total None: unknown."""

    state: str
    done: int
    total: int | None = None


@dataclass(frozen=True)
class CfgTemplate:
    """A network file in pieces: fixed text, or a text per precision code for one place of the precision string.

    parts: ('text', None) or ({code: text}, position). encoding: of the file, 'utf-8' or 'latin-1'.
    """

    file_name: str
    parts: tuple[tuple[str | Mapping[str, str], int | None], ...]
    encoding: str = "utf-8"

    def fill(self, key: str) -> str:
        """The file for one precision string. Raises KeyError or IndexError for a string of another network."""
        return "".join(part if isinstance(part, str) else part[key[position or 0]] for part, position in self.parts)


def images_text(name: str, count: int) -> str:
    """A set of images in words. name: 'all', 'selecting' or 'held_out'."""
    if name == "held_out":
        return f"the {counted(count, 'held-out image')}"
    every = "the one image" if count == 1 else f"all {counted(count)}"
    return every if name == "all" else f"the {counted(count)} that chose"


@dataclass(frozen=True)
class ReportData:
    """Everything that one page shows.

    objectives:   what the front is of, () for (objective, cost) of the table.
    picks:        what somebody could take, the first one first.
    intervals:    by row and column of the table: each is of the images that its column is of.
    intervals_by: where intervals come from, for a sentence. verdict: what a test says of the chosen configuration.
    held_out:     how many images did not select; columns of them begin with HELD_OUT.
    stability:    shares of resampled image sets, percent, as findings hold them (`sweep.stability`); {}: of runs.
    conditions:   what the front and the picks are worth under `sweep.conditions`, None: not measured.
    operating_point: what baseline and chosen configuration miss and invent at one score threshold, None: not known.
    board:        whose latency the table of a sweep is, in words. doubt: why times of layers should not be believed, or ''.
    """

    title: str
    kind: str
    source: str
    created: str
    status: Status
    layers: tuple[Layer, ...]
    configurations: Configurations
    intervals: Mapping[int, Mapping[str, Interval]] = field(default_factory=dict)
    classes: tuple[ClassRow, ...] = ()
    changes: tuple[Change, ...] = ()
    errors: tuple[LayerError, ...] = ()
    costs: tuple[LayerPair, ...] = ()
    worst: tuple[Image, ...] = ()
    confusion: Confusion | None = None
    operating_point: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    latency: Mapping[str, Any] = field(default_factory=dict)
    cfg: CfgTemplate | None = None
    held_out: int = 0
    objectives: tuple[str, ...] = ()
    picks: tuple[Pick, ...] = ()
    stability: Mapping[str, Any] = field(default_factory=dict)
    conditions: ConditionTables | None = None
    board: str = ""
    doubt: str = ""
    intervals_by: str = ""
    verdict: str = ""
    missing: tuple[Missing, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def task(self) -> Task:
        """What the network is for."""
        return task_of_protocol(self.protocol)

    @property
    def images(self) -> int:
        """How many images were measured on, 0 when that is not known."""
        images = self.protocol.get("images")
        return images if isinstance(images, int) else 0

    def images_of(self, column: str) -> str:
        """The images that a column's values are of, in words; '' for what is not of images."""
        return (
            ""
            if measure(column).cost or not self.images
            else images_text(
                "held_out" if column.startswith(HELD_OUT) else "selecting" if self.held_out else "all",
                self.held_out if column.startswith(HELD_OUT) else self.images - self.held_out,
            )
        )

    @property
    def shown_short(self) -> str:
        """What the page calls the configuration that it is about: of several runs nobody chose the last one."""
        return "last run" if self.kind == "runs" else "chosen"

    @property
    def shown_as(self) -> str:
        """The same where it stands alone."""
        return {"runs": "last run", "run": "configuration"}.get(self.kind, "chosen configuration")

    @property
    def judged(self) -> str:
        """Prefix of the columns that judge the chosen configuration: those of held-out images where there are any."""
        there = self.held_out and HELD_OUT + self.task.quality in self.configurations.columns
        return HELD_OUT if there else ""

    @property
    def weighted(self) -> tuple[Layer, ...]:
        """Layers that have a place in precision strings, in its order."""
        weighted = [layer for layer in self.layers if layer.position is not None]
        return tuple(sorted(weighted, key=lambda layer: layer.position or 0))
