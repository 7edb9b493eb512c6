# SPDX-License-Identifier: MIT
"""The data of a report, frozen: filled by `report.collect`, rendered by `report.html` and `report.text`.

Nothing here knows of SQLite, result.json or a network. Metrics are in percent, sizes in bytes, times in
milliseconds, signal-to-noise ratios in dB; "not measured" is NaN in an array and None elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Mapping

from mpnet.config.measures import HELD_OUT, measure
from mpnet.evaluation.compare import Interval
from mpnet.evaluation.operating_point import OperatingErrors
from mpnet.json_values import JsonObject
from mpnet.messages import counted
from mpnet.model.task import Task, task_of_protocol
from mpnet.report.data.differences import Change, ClassRow, Confusion, ImageTriple
from mpnet.sweep.layer_ranks import LayerNoise
from mpnet.sweep.result import Stability

if TYPE_CHECKING:
    from mpnet.report.data.conditions import ConditionTables
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
class LayerError:
    """The error of one layer's result beside fp32: local (only this layer's rounding) and cumulative.

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
class Omission:
    """A section that the page cannot show, the reason, and what would bring it."""

    subject: str
    reason: str
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
    """The progress of a sweep. state: 'finished', 'running' or 'interrupted'; total None: unknown."""

    state: str
    finished: int
    total: int | None = None


@dataclass(frozen=True)
class CfgTemplate:
    """A network file in pieces: fixed text, or a text per precision code for one place of the precision string.

    pieces: ('text', None) or ({code: text}, position). encoding: of the file, 'utf-8' or 'latin-1'.
    """

    file_name: str
    pieces: tuple[tuple[str | Mapping[str, str], int | None], ...]
    encoding: str = "utf-8"

    def fill(self, key: str) -> str:
        """Return the file for one precision string. Raises KeyError or IndexError for a string of another network."""
        return "".join(piece if isinstance(piece, str) else piece[key[position or 0]] for piece, position in self.pieces)


def images_text(name: str, count: int) -> str:
    """Describe a set of images. name: 'all', 'selecting' or 'held_out'."""
    if name == "held_out":
        return f"the {counted(count, 'held-out image')}"
    every = "the one image" if count == 1 else f"all {counted(count)}"
    return every if name == "all" else f"the {counted(count)} that chose"


@dataclass(frozen=True)
class ReportData:
    """Everything that one page shows.

    objectives:   what the front is of, () for (objective, cost) of the table.
    picks:        what somebody could take, the first one first. recommendation: what a sweep recommends, in a sentence.
    intervals:    by row and column of the table: each is of the images that its column is of.
    intervals_by: where intervals come from, for a sentence. verdict: what a test says of the chosen configuration.
    held_out:     how many images did not select; columns of them begin with HELD_OUT.
    layers_by_noise: of a sweep that screened, most noise first.
    stability:    shares of resampled image sets, percent; without draws: of runs.
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
    worst: tuple[ImageTriple, ...] = ()
    confusion: Confusion | None = None
    operating_point: OperatingErrors | None = None
    protocol: JsonObject = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str | None] = field(default_factory=dict)
    latency: JsonObject = field(default_factory=dict)
    cfg: CfgTemplate | None = None
    held_out: int = 0
    objectives: tuple[str, ...] = ()
    picks: tuple[Pick, ...] = ()
    recommendation: str = ""
    layers_by_noise: tuple[LayerNoise, ...] = ()
    stability: Stability = field(default_factory=Stability)
    conditions: ConditionTables | None = None
    board: str = ""
    doubt: str = ""
    intervals_by: str = ""
    verdict: str = ""
    omissions: tuple[Omission, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def task(self) -> Task:
        """Return what the network is for."""
        return task_of_protocol(self.protocol)

    @property
    def images(self) -> int:
        """Count the images that were measured on, 0 when that is not known."""
        images = self.protocol.get("images")
        return images if isinstance(images, int) else 0

    def images_of(self, column: str) -> str:
        """Describe the images that a column's values are of; '' for what is not of images."""
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
        """Return what the page calls the configuration that it is about: of several runs nobody chose the last one."""
        return "last run" if self.kind == "runs" else "recommended" if self._shows_recommended else "chosen"

    @property
    def shown_as(self) -> str:
        """Return what the page calls the configuration where that stands alone."""
        return {"runs": "last run", "run": "configuration"}.get(self.kind, f"{self.shown_short} configuration")

    @property
    def _shows_recommended(self) -> bool:
        return any(pick.name == "recommended" and pick.row == self.configurations.chosen for pick in self.picks)

    @property
    def judged(self) -> str:
        """Return prefix of the columns that judge the chosen configuration: those of held-out images where there are any."""
        has_held_out = self.held_out and HELD_OUT + self.task.quality in self.configurations.columns
        return HELD_OUT if has_held_out else ""

    @property
    def weighted(self) -> tuple[Layer, ...]:
        """Return the layers that have a place in precision strings, in its order."""
        weighted = [layer for layer in self.layers if layer.position is not None]
        return tuple(sorted(weighted, key=lambda layer: layer.position or 0))
