# SPDX-License-Identifier: MIT
"""Classes of images against their labels and against another run's: all shares of images, in percent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.data.classifications import Classifications
from mpnet.errors import DataError
from mpnet.evaluation.metrics import PERCENT

TOP: dict[str, int] = {"top1": 1, "top5": 5}
"""Measures, and among how many of the best classes the right one must be."""


def right(predictions: Classifications, labels: NDArray[np.int32], best: int) -> NDArray[np.bool_]:
    """Return bool (images,): whether the label is among the `best` best classes. Raises: DataError for other images."""
    if len(predictions) != len(labels):
        raise DataError(f"the run has {len(predictions)} images, the data set {len(labels)}")
    return np.asarray((predictions.category[:, :best] == labels[:, None]).any(axis=1))


def share(chosen: NDArray[np.bool_]) -> float:
    """Return percent of the images that are chosen; -1 of none."""
    return float(np.count_nonzero(chosen) / len(chosen) * PERCENT) if len(chosen) else -1.0


def agreement(predictions: Classifications, baseline: Classifications) -> float:
    """Return percent of the images whose best class is the baseline's; -1 of none. Raises: DataError for other images."""
    return share(right(predictions, baseline.best, 1))


def per_class(predictions: Classifications, labels: NDArray[np.int32], classes: int) -> list[dict[str, float]]:
    """Return for each class truths, top1 and top5 (percent of its images, -1 without any)."""
    truths = np.bincount(labels, minlength=classes)
    hits = {name: np.bincount(labels[right(predictions, labels, best)], minlength=classes) for name, best in TOP.items()}
    return [
        {"truths": int(count), **{name: float(hit[c] / count * PERCENT) if count else -1.0 for name, hit in hits.items()}}
        for c, count in enumerate(truths)
    ]
