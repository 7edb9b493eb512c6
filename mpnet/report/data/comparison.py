# SPDX-License-Identifier: MIT
"""Runs compared with the first one: what `mpnet compare` prints, writes as JSON and shows in notebooks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Mapping

from mpnet.config.measures import AGREEMENT, measure, names_of
from mpnet.evaluation.compare import Interval, verdict
from mpnet.evaluation.operating_point import OperatingErrors
from mpnet.formats.documents.typed import as_json
from mpnet.model.keys import json_key
from mpnet.model.task import Task
from mpnet.report.data.differences import Change, RunDifferences
from mpnet.speed.latency import Latency
from mpnet.tables import Chart, Table, Tabular, columns_of
from mpnet.trial.run_result import EngineRun

_AGREEMENTS = tuple(name.removeprefix(AGREEMENT) for name in names_of("agreement"))


@dataclass(frozen=True)
class DifferenceInterval:
    """A difference with the ends of its 95 % interval.

    within_noise: whether the interval contains zero; None of a measure that gets no verdict (`Measure.judged`).
    """

    difference: float
    low: float
    high: float
    within_noise: bool | None

    @classmethod
    def of(cls, name: str, interval: Interval) -> DifferenceInterval:
        """Return an interval of the measure of that name, with its verdict."""
        judgement = verdict(measure(name), interval)
        within_noise = None if judgement is None else judgement == "noise"
        return cls(interval.difference, interval.low, interval.high, within_noise)


@dataclass(frozen=True)
class RunAgreement:
    """The agreement of a run with the first one.

    values:       percent by measure, without the prefix `agreement_`.
    head_sqnr_db: of each output, None where it equals the baseline's bit for bit; None as a whole where it is not known.
    """

    baseline: str
    values: Mapping[str, float | None] = field(metadata=json_key(inline=_AGREEMENTS))
    head_sqnr_db: tuple[float | None, ...] | None


@dataclass(frozen=True)
class ComparedRun:
    """One run of a comparison.

    folder:      where it is stored. precision: its precision string. words: the same for people.
    metrics:     percent; -1 where nothing could be measured. differences, intervals: from the first run, by measure.
    cost, latency, deployed: as result.json holds them.
    agreement:   with the first run; None where it is not known.
    selection, held_out: metrics of a sweep's configuration on the images that select, and on those held out; None of runs.
    changes:     what one of the two gets right and the other does not; () where images or predictions are gone.
    verdict:     what a test says, '' where there is none.
    operating_point: errors at one score threshold; None where they are not known.
    """

    name: str
    id: str
    folder: str
    precision: str
    words: str
    metrics: Mapping[str, float]
    differences: Mapping[str, float]
    intervals: Mapping[str, DifferenceInterval]
    cost: Mapping[str, float]
    latency: Latency | None
    deployed: EngineRun | None
    agreement: RunAgreement | None
    selection: Mapping[str, float] | None
    held_out: Mapping[str, float] | None
    changes: tuple[Change, ...]
    verdict: str
    operating_point: OperatingErrors | None

    def document(self) -> dict[str, object]:
        """Return the run as `mpnet compare --json` prints it."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["intervals"] = {name: as_json(interval) for name, interval in self.intervals.items()}
        for name, value in (("latency", self.latency), ("deployed", self.deployed), ("agreement", self.agreement)):
            values[name] = None if value is None else as_json(value)
        values["changes"] = [change.as_json() for change in self.changes]
        return values


@dataclass(frozen=True)
class LayerPrecisions:
    """A layer with its precision and weight bytes in each run; differs: whether the precisions do."""

    index: int
    type: str
    name: str
    macs: int
    precisions: tuple[str, ...]
    differs: bool
    weight_bytes: tuple[float, ...]


@dataclass(frozen=True)
class ClassComparison:
    """A class with the task's quality in each run, percent, and each run's difference from the first one.

    intervals: of all runs but the first; None where there is none.
    """

    id: int
    name: str
    truths: int
    values: tuple[float, ...]
    differences: tuple[float, ...]
    intervals: tuple[DifferenceInterval | None, ...]

    def document(self, quality: str) -> dict[str, object]:
        """Return the class as `mpnet compare --json` prints it; quality: the key of its values."""
        return {
            "id": self.id,
            "name": self.name,
            "truths": self.truths,
            quality: list(self.values),
            "differences": list(self.differences),
            "intervals": [None if interval is None else as_json(interval) for interval in self.intervals],
        }


@dataclass(frozen=True)
class Comparison(Tabular):
    """Runs compared with the first one.

    draws:        of the bootstrap behind the intervals, 0: none was drawn. intervals_by: where intervals come from, in words.
    missing:      why there are no intervals and changes, '' where there are.
    protocol_differences: for each run the keys of the protocol in which it differs from the first.
    layers:       those with weights, or with precisions that differ.
    pairs:        each run but the first against it; () where images or predictions are gone.
    """

    task: Task
    draws: int
    intervals_by: str
    missing: str
    protocol_differences: tuple[tuple[str, ...], ...]
    runs: tuple[ComparedRun, ...]
    layers: tuple[LayerPrecisions, ...]
    per_class: tuple[ClassComparison, ...]
    pairs: tuple[RunDifferences, ...]

    @property
    def document(self) -> dict[str, object]:
        """Return what `mpnet compare --json` prints."""
        return {
            "baseline": self.runs[0].id,
            "task": self.task.name,
            "draws": self.draws,
            "intervals_by": self.intervals_by,
            "missing": self.missing,
            "protocol_differences": [list(keys) for keys in self.protocol_differences],
            "runs": [run.document() for run in self.runs],
            "layers": [as_json(layer) for layer in self.layers],
            "per_class": [row.document(self.task.quality) for row in self.per_class],
        }

    @property
    def table(self) -> Table:
        """Return one row a run and measure; low, high: ends of the difference's 95 % interval, NaN where they are unknown."""
        baseline, *runs = self.runs
        rows = []
        for run in runs:
            for name, change in run.differences.items():
                interval = run.intervals.get(name)
                rows.append(
                    {
                        "run": run.name,
                        "measure": name,
                        "baseline": baseline.metrics.get(name),
                        "value": run.metrics.get(name),
                        "difference": change,
                        "low": math.nan if interval is None else interval.low,
                        "high": math.nan if interval is None else interval.high,
                    }
                )
        return Table(
            columns_of(rows), f"Differences from {baseline.name}", Chart("difference", "measure", low="low", high="high")
        )
