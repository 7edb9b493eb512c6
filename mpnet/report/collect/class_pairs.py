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
from mpnet.report.data.differences import ClassRow, Guess, ImageChange, Pair
from mpnet.trial.classification import paired


class ClassPairing:
    """Compares any number of runs with one baseline. draws, seed: of a bootstrap, which shares of images do not need.

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

    def pair(self, other: Classifications) -> Pair:
        """Everything about one run against the baseline."""
        same = right(other, self._baseline.best, 1)
        other = self.dataset.of_labelled(other)
        now = {name: right(other, self.dataset.labels, best) for name, best in TOP.items()}
        low, high = share_interval(int(np.count_nonzero(same)), len(same))
        values = {**{name: share(hits) for name, hits in now.items()}, "agreement_top1": share(same)}
        metrics = {name: paired(self._right[name], hits) for name, hits in now.items() if len(hits)}
        metrics["agreement_top1"] = Interval(values["agreement_top1"] - 100, low - 100, high - 100)
        before, after = self._right["top1"], now["top1"]
        lost, gained = np.flatnonzero(before & ~after), np.flatnonzero(after & ~before)
        exact, mid = mcnemar(len(lost), len(gained))
        moved = int(np.count_nonzero(~same[: len(before)])) - len(lost) - len(gained)
        verdict = f"McNemar's test: mid-p {mid:.3g}, exact p {exact:.3g}" + (
            f"; {moved} more went from one wrong class to another" if moved else ""
        )
        changes = [self._change("lost", int(i), other) for i in lost] + [self._change("gained", int(i), other) for i in gained]
        changes.sort(key=lambda change: change.order)
        return Pair(metrics, values, self._classes(before, after, other), tuple(changes), (), verdict)

    def _classes(self, before: NDArray[np.bool_], after: NDArray[np.bool_], other: Classifications) -> tuple[ClassRow, ...]:
        labels, count = self.dataset.labels, len(self.dataset.categories)
        tables = zip(*(per_class(run, labels, count) for run in (self._labelled, other)), strict=True)
        present = np.bincount(labels, minlength=count)
        lost = np.bincount(labels[before & ~after], minlength=count)
        gained = np.bincount(labels[after & ~before], minlength=count)
        low, high = paired_interval(lost, gained, np.maximum(present, 1))
        bounds = list(zip(low.tolist(), high.tolist(), strict=True))
        return tuple(
            ClassRow(name, int(present[c]), first, second, Interval(second["top1"] - first["top1"], *bounds[c]))
            for c, (name, (first, second)) in enumerate(zip(self.dataset.names, tables, strict=True))
            if present[c]
        )

    def _change(self, kind: str, position: int, other: Classifications) -> ImageChange:
        first, second = (
            Guess(self.dataset.names[int(run.category[position, 0])], float(run.score[position, 0]))
            for run in (self._baseline, other)
        )
        name = self.dataset.names[int(self.dataset.labels[position])]
        score = first.score if kind == "lost" else second.score
        return ImageChange(kind, self.dataset.images[position].path, name, score, first, second)
