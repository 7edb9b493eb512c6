# SPDX-License-Identifier: MIT
"""The table of measures: all that is measured, counted or predicted of a configuration, one row each.

Everything else asks this table: stores what they keep, experiment files what may be an objective or a limit, reports
what a number is called. A further measure is one row here and what computes it: `trial.measure` for detections and
tensors, `engine.cost` for plans. docs/evaluation.md lists the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterable, Iterator, Literal

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import ConfigError
from mpnet.model.task import CLASSIFICATION, DETECTION, TASKS, Task

HELD_OUT = "held_out_"
"""Prefix of a measure on the images that only report; the plain name is then of those that select."""
AGREEMENT = "agreement_"
"""Prefix of a metric with the baseline's detections as truth; result.json has it without, in a section of its own."""
DROP = "_drop"
"""Suffix of the constraint on how much of a measure may be lost; AP's is spelt `ap_drop`."""
MAX_SQNR_DB = 150.0
"""What equal tensors get: about the precision of float32, beyond which a ratio says nothing."""

DEPLOYED = "deployed_"
"""Prefix of a measure of the same configuration run by another engine."""

Kind = Literal["accuracy", "agreement", "signal", "deployed", "cost", "count"]
Stored = Literal["trials", "runs", "verified", "nowhere"]
_REPORT_ORDER: tuple[Kind, ...] = ("agreement", "accuracy", "signal", "deployed", "cost", "count")


@dataclass(frozen=True)
class Measure:
    """One number of a configuration.

    name:     its key in result.json, stores, experiment files and reports.
    label:    for people, with unit ('%', 'dB', 'B', 'ms', '' for counts) and decimals.
    kind:     accuracy (against labels), agreement (with the baseline's detections), signal (against the baseline's
              tensors), deployed (in another engine), cost (less is better), count (neither).
    means:    what it is, in one sentence.
    stored:   'trials': by runs and by sweeps; 'runs': by runs only; 'verified': by runs in another engine and by sweeps
              of what they verify in one; 'nowhere': reports derive it.
    headline: whether a report shows it first.
    compared: whether `mpnet compare` shows it.
    axis:     which measure of quality, and which cost, a front is drawn over when nobody says: 1 before 2; 0: never.
    itself:   what the baseline has, where the measure is against the baseline.
    upper_bound: the most that it can be; None where nothing bounds it.
    stand_in: the finite value that stores keep for infinity.
    remedy:   what helps where a sweep did not measure it.
    task:     of model.task that it is of; '' for any.
    optional: whether results may lack it: those that were written before the row was. Of costs and counts.
    """

    name: str
    label: str
    unit: str
    kind: Kind
    means: str
    digits: int = 2
    stored: Stored = "trials"
    headline: bool = False
    compared: bool = True
    axis: int = 0
    itself: float | None = None
    upper_bound: float | None = None
    stand_in: float | None = None
    remedy: str = "choose another objective"
    task: str = ""
    optional: bool = False

    @property
    def cost(self) -> bool:
        """Return whether it is what quality is paid with."""
        return self.kind == "cost" or self.unit == "ms"

    @property
    def higher(self) -> bool:
        """Return whether more is better."""
        return not self.cost

    @property
    def sense(self) -> int:
        """Return the factor that turns a value into one to be minimised."""
        return -1 if self.higher else 1

    @property
    def objective(self) -> bool:
        """Return whether a sweep's front may be drawn over it."""
        return self.stored == "trials" and self.kind != "count"

    @property
    def judged(self) -> bool:
        """Return whether a difference from the baseline is called a loss, a gain or noise.

        It is not where the baseline itself has the upper bound: such a difference is never positive, so that its interval
        cannot reach zero by chance.
        """
        return self.itself is None or self.itself != self.upper_bound

    @property
    def limit(self) -> bool:
        """Return whether `sweep.constraints` may limit it by its name."""
        return self.objective and self.cost

    @property
    def whole(self) -> bool:
        """Return whether its values are whole numbers."""
        return self.digits == 0

    def measured(self, stored: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values (n,) from how they are stored: NaN where there was nothing to measure, infinity for its stand-in."""
        values = np.array(stored, dtype=np.float64)
        if self.kind in ("accuracy", "agreement", "deployed"):
            values[values < 0] = np.nan
        if self.stand_in is not None:
            values[values >= self.stand_in] = np.inf
        return values


_BASELINE = "give the experiment a baseline"
_SURE = "with the baseline's detections of score 0.25 and more as truth"

_OF_DETECTORS: tuple[Measure, ...] = (
    Measure(
        "AP",
        "AP",
        "%",
        "accuracy",
        "Mean over classes and over IoU thresholds 0.50, 0.55, ... 0.95 of the average precision, as COCO defines it.",
        headline=True,
        axis=2,
    ),
    Measure("AP50", "AP50", "%", "accuracy", "AP at IoU 0.50 alone.", headline=True, axis=3),
    Measure("AP75", "AP75", "%", "accuracy", "AP at IoU 0.75 alone."),
    Measure("AP_small", "AP small", "%", "accuracy", "AP of objects below 32 x 32 pixels.", stored="runs"),
    Measure("AP_medium", "AP medium", "%", "accuracy", "AP of objects from 32 x 32 to 96 x 96 pixels.", stored="runs"),
    Measure("AP_large", "AP large", "%", "accuracy", "AP of objects above 96 x 96 pixels.", stored="runs"),
    Measure(
        "AR1",
        "AR1",
        "%",
        "accuracy",
        "Mean recall over the same thresholds, with the best detection of each image and class.",
        stored="runs",
        compared=False,
    ),
    Measure(
        "AR10",
        "AR10",
        "%",
        "accuracy",
        "Mean recall with the 10 best detections of each image and class.",
        stored="runs",
        compared=False,
    ),
    Measure("AR100", "AR100", "%", "accuracy", "Mean recall with the 100 best detections of each image and class."),
    Measure(
        "darknet_mAP50",
        "Darknet mAP@0.5",
        "%",
        "accuracy",
        "Mean average precision at IoU 0.50 as Darknet counts it, over 11 points of recall.",
    ),
    Measure(
        "agreement_AP",
        "agreement AP",
        "%",
        "agreement",
        f"AP {_SURE}; finer than AP, 100 where nothing changed.",
        headline=True,
        axis=1,
        itself=100.0,
        remedy=_BASELINE,
    ),
    Measure("agreement_AP75", "agreement AP75", "%", "agreement", f"AP75 {_SURE}.", itself=100.0, remedy=_BASELINE),
    Measure("agreement_AP95", "agreement AP95", "%", "agreement", f"AP at IoU 0.95 {_SURE}.", itself=100.0, remedy=_BASELINE),
)
_OF_CLASSIFIERS: tuple[Measure, ...] = (
    Measure("top1", "top-1", "%", "accuracy", "Share of the images whose best class is the right one.", headline=True, axis=2),
    Measure(
        "top5", "top-5", "%", "accuracy", "Share of the images with the right class among the five best.", headline=True, axis=3
    ),
    Measure(
        "agreement_top1",
        "agreement top-1",
        "%",
        "agreement",
        "Share of the images whose best class is the baseline's. "
        "The top-1 of the two runs differs by at most 100 minus this value.",
        headline=True,
        axis=1,
        itself=100.0,
        remedy=_BASELINE,
    ),
)


def _in_an_engine(task: Task) -> Iterator[Measure]:
    """List what is measured of a task's configurations in the engine that they were exported for."""
    for name, how in (
        (task.quality, ", run by the engine that it was exported for"),
        (task.agreement, " with mpnet's own baseline"),
    ):
        label = next(row.label for row in (*_OF_DETECTORS, *_OF_CLASSIFIERS) if row.name == name)
        means = f"{label[0].upper()}{label[1:]} of the exported configuration{how}."
        yield Measure(
            *(DEPLOYED + name, f"{label} in the engine", "%", "deployed", means),
            stored="verified",
            task=task.name,
            upper_bound=100.0,
        )


MEASURES: tuple[Measure, ...] = (
    *(replace(row, task=DETECTION.name, upper_bound=100.0) for row in _OF_DETECTORS),
    *(replace(row, task=CLASSIFICATION.name, upper_bound=100.0) for row in _OF_CLASSIFIERS),
    Measure(
        "head_sqnr_db",
        "head SQNR",
        "dB",
        "signal",
        "Signal to noise of the tensors that enter the heads, against "
        "the baseline's: -10 log10 of the mean over heads of noise / signal.",
        1,
        headline=True,
        itself=np.inf,
        upper_bound=np.inf,
        stand_in=MAX_SQNR_DB,
        remedy=_BASELINE,
    ),
    Measure(
        "weight_bytes",
        "weights",
        "B",
        "cost",
        "Stored parameters: weights at their precision, fp32 biases, int8 scales.",
        0,
        headline=True,
        axis=2,
    ),
    Measure(
        "peak_activation_bytes",
        "peak activations",
        "B",
        "cost",
        "Most memory that tensors take at one time, for one image and with it.",
        0,
        axis=4,
    ),
    Measure(
        "bit_operations",
        "bit operations",
        "",
        "cost",
        "Sum over convolutions of multiply-accumulates x bits of a weight x bits of an activation, for one image.",
        0,
        headline=True,
        axis=1,
    ),
    Measure("int8_macs", "MACs in int8", "", "count", "Multiply-accumulates that are done in int8, for one image.", 0),
    Measure(
        "fp_mac_share",
        "MACs not in int8",
        "%",
        "cost",
        "Share of the multiply-accumulates that is not done in int8.",
        1,
        stored="nowhere",
    ),
    Measure(
        "latency_ms",
        "latency",
        "ms",
        "cost",
        "Time for one image, input ready to heads: the median of a run; in a sweep the sum of a latency table's steps.",
        headline=True,
        axis=3,
        remedy="make a table with `mpnet profile` and name it in sweep.latency",
    ),
    *(row for task in TASKS.values() for row in _in_an_engine(task)),
    Measure(
        f"{DEPLOYED}latency_ms",
        "latency in the engine",
        "ms",
        "deployed",
        "Time for one image in the engine, taken in turn with mpnet's own.",
        stored="verified",
    ),
)


def measure(name: str) -> Measure:
    """Return the row of a name; held-out ones inherit, an unknown one is shown as it is called."""
    for row in MEASURES:
        if row.name == name:
            return row
    if name.startswith(HELD_OUT):
        row = measure(name.removeprefix(HELD_OUT))
        return replace(row, name=name, label=f"{row.label}, held out")
    return Measure(name, name, "", "accuracy", "", stored="nowhere")


def names_of(*kinds: Kind, stored: Stored | None = None, task: Task | None = None) -> tuple[str, ...]:
    """Return the names of all measures of some kinds, or of those that are stored in one way or apply to one task."""
    return tuple(
        row.name
        for row in MEASURES
        if row.kind in kinds and stored in (None, row.stored) and (task is None or row.task in ("", task.name))
    )


def trial_metrics() -> tuple[str, ...]:
    """Return the names of what a sweep measures on images.

    With a holdout they are of the images that select; those of the others have a prefix.

    """
    return names_of("accuracy", "agreement", "signal", stored="trials")


def trial_costs() -> tuple[str, ...]:
    """Return the names of what a sweep counts."""
    return names_of("cost", "count", stored="trials")


def cost_objective(objectives: Iterable[str]) -> str:
    """Return the first cost among a sweep's objectives, bit operations where there is none: what cheap is of."""
    return next((name for name in objectives if measure(name).cost), "bit_operations")


def counted() -> tuple[Measure, ...]:
    """Return what is counted of a configuration's plan rather than measured: the costs of result.json but latency."""
    return tuple(measure(name) for name in trial_costs() if measure(name).unit != "ms")


def trial_columns() -> tuple[str, ...]:
    """Return everything that a store keeps of a trial."""
    return (*trial_metrics(), *(HELD_OUT + name for name in trial_metrics()), *trial_costs())


def objectives(task: Task | None = None) -> tuple[str, ...]:
    """Return the names that `sweep.objectives` may hold (for networks of one task): measures of quality, then costs."""
    return tuple(row.name for row in MEASURES if row.objective and (task is None or row.task in ("", task.name)))


def limits() -> tuple[Measure, ...]:
    """Return what `sweep.constraints` may limit by its name."""
    return tuple(row for row in MEASURES if row.limit)


def droppable() -> tuple[Measure, ...]:
    """Return the measures of accuracy whose loss `sweep.constraints` may limit by name; AP has keys of its own."""
    return tuple(row for row in MEASURES if row.objective and row.higher and row.name != "AP")


def objective(name: str) -> Measure:
    """Return the objective called `name`. Raises: ConfigError that lists the known ones."""
    if name not in objectives():
        raise ConfigError(f"unknown objective {name!r}; known are {', '.join(objectives())}")
    return measure(name)


def in_report_order() -> list[Measure]:
    """Return all rows: agreement, which tells configurations apart best, then accuracy, signal and costs."""
    return sorted(MEASURES, key=lambda row: _REPORT_ORDER.index(row.kind))


def leading(task: Task) -> list[Measure]:
    """Return the first row of every kind of quality, in the order of reports: the others of a kind say much the same."""
    return [measure(names_of(kind, task=task)[0]) for kind in _REPORT_ORDER[:3]]
