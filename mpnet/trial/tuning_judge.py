# SPDX-License-Identifier: MIT
"""The judge of a tuning's stages: agreement of mpnet's own runs with the parent's baseline, on images kept apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mpnet.config.identity import digest_of
from mpnet.errors import DataError
from mpnet.evaluation.compare import Interval
from mpnet.trial.inference import own_runner, run_all
from mpnet.trial.kit import Predictions
from mpnet.trial.workbench import Workbench


class Judge:
    """The judge of stages: mpnet's own runs on the images apart, each made once. measure: of agreement."""

    def __init__(self, parent: Workbench, apart: Workbench, baseline: str) -> None:
        self._apart = apart
        self._baseline = baseline
        self._runs: dict[tuple[str, str], tuple[Predictions, Predictions]] = {}
        reference = parent.reference
        self.reference: Predictions = self._run(reference)[1]
        self._meter = apart.kit.meter(apart.dataset, self.reference)
        self.measure = apart.kit.task.agreement

    def check(self, unlabelled: Path) -> None:
        """Check that there is something to agree with. Raises: DataError."""
        if self._value(self.reference) < 0:
            raise DataError(
                f"{unlabelled}: the {self._baseline} network finds nothing on the {len(self._apart.inputs)} images that are "
                "kept apart, so no gain could be seen; name images of what it finds"
            )

    def _run(self, bench: Workbench) -> tuple[Predictions, Predictions]:
        """Return what the configuration and the baseline of a workbench find on the images apart."""
        key = (bench.weights.digest, digest_of(bench.quantization))
        if key not in self._runs:
            plans = [bench.plan(bench.assign()), bench.plan(bench.uniform(self._baseline))]
            here = replace(bench, dataset=self._apart.dataset, inputs=self._apart.inputs)
            here.__dict__["prepared"] = bench.prepared
            first, second = run_all(here, [own_runner(bench.prepared, plan) for plan in plans])
            self._runs[key] = first.predictions, second.predictions
        return self._runs[key]

    def _value(self, predictions: Predictions) -> float:
        return float(self._meter.values(predictions, (self.measure,))[self.measure])

    def agreement(self, bench: Workbench) -> float:
        """Return the agreement of a configuration with the parent's baseline, percent."""
        return self._value(self._run(bench)[0])

    def own_baseline(self, bench: Workbench) -> float:
        """Return the agreement of the weights' own baseline with the parent's, percent."""
        return self._value(self._run(bench)[1])

    def gain(self, before: Workbench, after: Workbench) -> Interval:
        """Return how much more the second configuration agrees, with its paired 95 % interval."""
        found: Interval = self._apart.kit.gain(self._apart.dataset, self.reference, self._run(before)[0], self._run(after)[0])
        return found
