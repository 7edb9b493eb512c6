# SPDX-License-Identifier: MIT
"""Runs of a classifier on the same images, pair by pair: intervals, classes, and the images that only one gets right."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.data.classifications import Classifications
from mpnet.data.dataset import Dataset
from mpnet.errors import DataError
from mpnet.evaluation.classification import TOP, per_class, right, share
from mpnet.evaluation.compare import Interval
from mpnet.evaluation.proportions import METHOD, mcnemar, paired_interval, share_interval
from mpnet.report.data.differences import ClassRow, Guess, ImageChange, RunDifferences
from mpnet.trial.classification import paired


class ClassPairing:
    """A comparison of any number of runs with one baseline. draws, seed: of a bootstrap, which shares of images do not need.

    Raises: DataError when classifications are not of the data set's images.
    """

    def __init__(self, dataset: Dataset, baseline: Classifications, draws: int = 0, seed: int = 0) -> None:
        if not len(dataset.images):
            raise DataError("the data set has no images; nothing can be compared")
        self.dataset = dataset
        self.intervals_by = METHOD
        self._baseline = baseline
        self._labelled = dataset.of_labelled(baseline)
        self._right = {name: right(self._labelled, dataset.labels, best) for name, best in TOP.items()}

    def pair(self, predictions: Classifications) -> RunDifferences:
        """Compare one run with the baseline."""
        agrees = right(predictions, self._baseline.best, 1)
        predictions = self.dataset.of_labelled(predictions)
        correct = {name: right(predictions, self.dataset.labels, best) for name, best in TOP.items()}
        low, high = share_interval(int(np.count_nonzero(agrees)), len(agrees))
        values = {**{name: share(hits) for name, hits in correct.items()}, "agreement_top1": share(agrees)}
        metrics = {name: paired(self._right[name], hits) for name, hits in correct.items() if len(hits)}
        metrics["agreement_top1"] = Interval(values["agreement_top1"] - 100, low - 100, high - 100)
        baseline_correct, top1_correct = self._right["top1"], correct["top1"]
        lost_images, gained_images = (
            np.flatnonzero(baseline_correct & ~top1_correct),
            np.flatnonzero(top1_correct & ~baseline_correct),
        )
        exact, mid = mcnemar(len(lost_images), len(gained_images))
        moved_count = int(np.count_nonzero(~agrees[: len(baseline_correct)])) - len(lost_images) - len(gained_images)
        verdict = f"McNemar's test: mid-p {mid:.3g}, exact p {exact:.3g}" + (
            f"; {moved_count} more went from one wrong class to another" if moved_count else ""
        )
        changes = [self._change("lost", int(i), predictions) for i in lost_images] + [
            self._change("gained", int(i), predictions) for i in gained_images
        ]
        changes.sort(key=lambda change: change.order)
        return RunDifferences(
            metrics, values, self._classes(baseline_correct, top1_correct, predictions), tuple(changes), (), verdict
        )

    def _classes(
        self, baseline_correct: NDArray[np.bool_], top1_correct: NDArray[np.bool_], predictions: Classifications
    ) -> tuple[ClassRow, ...]:
        labels, count = self.dataset.labels, len(self.dataset.categories)
        tables = zip(*(per_class(side, labels, count) for side in (self._labelled, predictions)), strict=True)
        present = np.bincount(labels, minlength=count)
        lost_counts = np.bincount(labels[baseline_correct & ~top1_correct], minlength=count)
        gained_counts = np.bincount(labels[top1_correct & ~baseline_correct], minlength=count)
        low, high = paired_interval(lost_counts, gained_counts, np.maximum(present, 1))
        bounds = list(zip(low.tolist(), high.tolist(), strict=True))
        return tuple(
            ClassRow(name, int(present[c]), baseline_row, row, Interval(row["top1"] - baseline_row["top1"], *bounds[c]))
            for c, (name, (baseline_row, row)) in enumerate(zip(self.dataset.names, tables, strict=True))
            if present[c]
        )

    def _change(self, kind: str, position: int, predictions: Classifications) -> ImageChange:
        baseline_guess, guess = (
            Guess(self.dataset.names[int(side.category[position, 0])], float(side.score[position, 0]))
            for side in (self._baseline, predictions)
        )
        name = self.dataset.names[int(self.dataset.labels[position])]
        score = baseline_guess.score if kind == "lost" else guess.score
        return ImageChange(kind, self.dataset.images[position].path, name, score, baseline_guess, guess)
