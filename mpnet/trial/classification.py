# SPDX-License-Identifier: MIT
"""Classifiers: the last tensor -> the best classes of each image, and how these are measured and kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.experiment import Experiment
from mpnet.data.classifications import Classifications, best_classes, class_scores, join_images
from mpnet.data.dataset import Dataset
from mpnet.evaluation.classification import TOP, agreement, per_class, right, share
from mpnet.evaluation.compare import Interval, draw_images
from mpnet.evaluation.metrics import PERCENT
from mpnet.evaluation.noninferiority import Loss
from mpnet.evaluation.proportions import METHOD, paired_interval
from mpnet.formats.documents.predictions import predictions_json, read_predictions
from mpnet.json_values import JsonObject
from mpnet.model.network import NetworkSpec
from mpnet.model.task import CLASSIFICATION
from mpnet.trial.kit import Compared, Kit
from mpnet.trial.run_result import ClassResult

# Part of what identifies stored results, so its words never change.
METRIC = "share of the pictures with the right class first, and among the five best"


@dataclass(frozen=True)
class ClassificationDecoder:
    """The scores of all classes are the network's last tensor; only the best are kept."""

    def decode(self, output: int, tensor: NDArray[np.float32], geometry: NDArray[np.float32]) -> Classifications:
        """Return the best classes of a few images."""
        return best_classes(class_scores(tensor))

    def of_images(self, positions: NDArray[np.intp]) -> ClassificationDecoder:
        """Return this decoder: it is the same for all images."""
        return self

    def join(self, parts: Sequence[Classifications], order: NDArray[np.intp] | None = None) -> Classifications:
        """Join the classes of consecutive groups of images to those of all images, in another order if one is given."""
        joined = join_images(parts)
        return joined if order is None else joined.of_images(order)

    def predictions(self, outputs: Sequence[Classifications]) -> Classifications:
        """Return the predictions of the one output."""
        return outputs[0]


class ClassMeter:
    """A meter of any number of runs on one data set."""

    def __init__(self, dataset: Dataset, baseline: Classifications | None = None) -> None:
        self._dataset, self._labels, self._baseline = dataset, dataset.labels, baseline

    def values(self, predictions: Classifications, requested: Collection[str] | None = None) -> dict[str, float]:
        """Return top1, top5 and, with a baseline, agreement_top1, in percent; -1 without images."""
        labelled = self._dataset.of_labelled(predictions)
        values = {name: share(right(labelled, self._labels, best)) for name, best in TOP.items()}
        return values if self._baseline is None else {**values, "agreement_top1": agreement(predictions, self._baseline)}


def _bounded_labels(
    dataset: Dataset, baseline: Classifications | None, measures: Collection[str]
) -> dict[str, NDArray[np.int32]]:
    """Return the right class of each image for top-1 and for agreement, as far as these are wanted."""
    labels = {CLASSIFICATION.quality: dataset.labels}
    if baseline is not None:
        labels[CLASSIFICATION.agreement] = baseline.best
    return {name: values for name, values in labels.items() if name in measures}


def class_image_order(
    dataset: Dataset, baseline: Classifications | None, measures: Collection[str], sample: Classifications
) -> NDArray[np.intp]:
    """Return positions of the images, those first that most runs of a sample get wrong in the last measure that is wanted."""
    _, labels = _bounded_labels(dataset, baseline, measures).popitem()
    is_wrong = ~right(sample, np.tile(labels, len(sample) // len(labels)), 1).reshape(-1, len(labels))
    return np.argsort(-np.count_nonzero(is_wrong, axis=0), kind="stable")


class ClassUpperBounds:
    """The upper bounds of `trial.kit.UpperBounds` for classifiers: every image that was not seen counts as right."""

    def __init__(
        self,
        dataset: Dataset,
        baseline: Classifications | None,
        measures: Collection[str],
        order: NDArray[np.intp] | None = None,
    ) -> None:
        self._labels = _bounded_labels(dataset, baseline, measures)
        self.order = np.arange(len(dataset.images)) if order is None else order
        self._labels = {name: labels[self.order] for name, labels in self._labels.items()}

    def evidence(self, predictions: Classifications, first: int, last: int) -> list[dict[str, int]]:
        """Count the wrong images, by measure."""
        runs = len(predictions) // (last - first)
        wrong_counts = {
            name: np.count_nonzero(~right(predictions, np.tile(labels[first:last], runs), 1).reshape(runs, -1), axis=1)
            for name, labels in self._labels.items()
        }
        return [{name: int(counts[run]) for name, counts in wrong_counts.items()} for run in range(runs)]

    def most(self, runs: Sequence[Sequence[Mapping[str, int]]]) -> dict[str, NDArray[np.float64]]:
        """Return the upper bound of each measure in percent, float64 (runs,)."""
        return {
            name: np.array([PERCENT * (1 - sum(group[name] for group in run) / len(labels)) for run in runs])
            for name, labels in self._labels.items()
        }


def paired(right_in_baseline: NDArray[np.bool_], right_in_run: NDArray[np.bool_]) -> Interval:
    """Return the difference of two shares of the same images, percent points, with its 95 % interval (Tango's)."""
    lost, gained = (
        int(np.count_nonzero(right_in_baseline & ~right_in_run)),
        int(np.count_nonzero(right_in_run & ~right_in_baseline)),
    )
    low, high = paired_interval(lost, gained, len(right_in_baseline))
    return Interval(100 * (gained - lost) / len(right_in_baseline), float(low), float(high))


def _loss(dataset: Dataset, baseline: Classifications) -> Callable[[Classifications], Compared]:
    right_in_baseline = right(dataset.of_labelled(baseline), dataset.labels, 1)
    weight = draw_images(len(dataset.images))

    def loss(predictions: Classifications) -> Compared:
        right_in_run, agrees = right(dataset.of_labelled(predictions), dataset.labels, 1), right(predictions, baseline.best, 1)
        losses = {"agreement_top1": _lost(np.ones_like(agrees), agrees)}
        if len(right_in_baseline):
            losses["top1"] = _lost(right_in_baseline, right_in_run)
        agreement_drawn = 100 * (weight @ agrees.astype(np.float64)) / len(agrees)
        return Compared(paired(right_in_baseline, right_in_run) if len(right_in_baseline) else None, losses, agreement_drawn)

    return loss


def _gain(dataset: Dataset, baseline: Classifications, first: Classifications, second: Classifications) -> Interval:
    return paired(right(first, baseline.best, 1), right(second, baseline.best, 1))


def _lost(right_in_baseline: NDArray[np.bool_], right_in_run: NDArray[np.bool_]) -> Loss:
    lost, gained = (
        int(np.count_nonzero(right_in_baseline & ~right_in_run)),
        int(np.count_nonzero(right_in_run & ~right_in_baseline)),
    )
    return Loss(len(right_in_baseline), 100 * (lost - gained) / len(right_in_baseline), pairs=(lost, gained))


def _protocol(experiment: Experiment, network: NetworkSpec, dataset: Dataset) -> JsonObject:
    return {"task": CLASSIFICATION.name, "classes": len(dataset.categories), "metric": METRIC}


def measure_classifications(predictions: Classifications, dataset: Dataset) -> tuple[dict[str, float], list[ClassResult]]:
    """Return the `metrics` and `per_class` of a result, in percent; -1 where there are no images."""
    rows = per_class(dataset.of_labelled(predictions), dataset.labels, len(dataset.categories))
    return ClassMeter(dataset).values(predictions), [
        ClassResult(category.id, category.name, int(row["truths"]), {name: row[name] for name in TOP})
        for category, row in zip(dataset.categories, rows, strict=True)
    ]


CLASSIFICATION_KIT: Kit[Classifications] = Kit(
    CLASSIFICATION,
    lambda *_: ClassificationDecoder(),
    _protocol,
    ClassMeter,
    class_image_order,
    ClassUpperBounds,
    measure_classifications,
    _loss,
    _gain,
    METHOD,
    predictions_json,
    read_predictions,
)
