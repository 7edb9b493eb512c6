# SPDX-License-Identifier: MIT
"""Detectors: head tensors -> candidates -> detections, and how these are measured and kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.experiment import Experiment
from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections
from mpnet.detection.decode import Candidates, Cells, YoloHead, decode_head, join_images, yolo_heads
from mpnet.detection.nms import NmsOptions, suppress
from mpnet.evaluation.agreement import Agreement
from mpnet.evaluation.compare import Draws, Interval, bootstrap, compare, draw_images
from mpnet.evaluation.intervals import METHOD, difference_interval
from mpnet.evaluation.metrics import CocoEvaluator, CocoResult
from mpnet.evaluation.noninferiority import POOLED, accuracy_loss, agreement_loss
from mpnet.formats.documents.detections import detections_json, read_detections
from mpnet.json_values import JsonObject
from mpnet.model.network import NetworkSpec
from mpnet.model.task import DETECTION
from mpnet.trial.kit import Compared, Kit
from mpnet.trial.measure import DetectionUpperBounds, Meter, detection_image_order, measure_detections

# Part of what identifies stored results, so its words never change.
METRIC = "COCO AP@[.50:.95], 101 recall points, 100 detections per picture and class; Darknet mAP@0.5, 11 points"


@dataclass(frozen=True, eq=False)
class DetectionDecoder:
    """heads: of the network, in order. sizes: float32 (images, 2) of the images. limit: the best so many of each."""

    heads: tuple[YoloHead, ...]
    nms: NmsOptions
    confidence: float
    limit: int | None
    sizes: NDArray[np.float32]

    def decode(
        self, output: int, tensor: NDArray[np.float32], geometry: NDArray[np.float32], cells: Cells | None = None
    ) -> Candidates:
        """Decode the boxes of one head. cells: see `decode_head`."""
        return decode_head(tensor, self.heads[output], geometry, self.confidence, cells)

    def of_images(self, positions: NDArray[np.intp]) -> DetectionDecoder:
        """Return the decoder of these images alone, in this order."""
        return replace(self, sizes=self.sizes[positions])

    def join(self, parts: Sequence[Candidates], order: NDArray[np.intp] | None = None) -> Candidates:
        """Join the boxes of consecutive groups of images to those of all images, in another order if one is given."""
        joined = join_images(parts)
        return joined if order is None else joined.in_order(order)

    def predictions(self, outputs: Sequence[Candidates]) -> Detections:
        """Return the boxes suppressed over all heads and cut to the best of each image, if that is asked for."""
        runs = outputs[0].image_count // max(1, len(self.sizes))
        return best_of_each(suppress(outputs, np.tile(self.sizes, (runs, 1)), self.nms), self.limit)


def best_of_each(detections: Detections, limit: int | None) -> Detections:
    """Return the `limit` best detections of each image; equal scores in their order."""
    if limit is None or len(detections) == 0:
        return detections
    order = np.lexsort((-detections.score, detections.image_index))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - detections.offsets[detections.image_index[order]]
    return detections.select(rank < limit)


def nms_of(experiment: Experiment, network: NetworkSpec) -> NmsOptions:
    """Return the suppression as the experiment says, else as the last yolo layer does."""
    detection, yolo = experiment.detection, network.yolos[-1]
    return NmsOptions(detection.nms_kind or yolo.nms_kind, detection.nms, yolo.beta_nms)


def _decoder(experiment: Experiment, network: NetworkSpec, dataset: Dataset) -> DetectionDecoder:
    detection = experiment.detection
    return DetectionDecoder(
        yolo_heads(network), nms_of(experiment, network), detection.confidence, detection.max_detections, dataset.sizes
    )


def _protocol(experiment: Experiment, network: NetworkSpec, dataset: Dataset) -> JsonObject:
    detection = experiment.detection
    return {
        "boxes": len(dataset.box),
        "confidence": detection.confidence,
        "nms": detection.nms,
        "nms_kind": nms_of(experiment, network).kind,
        "max_detections": detection.max_detections,
        "metric": METRIC,
    }


class _Loss:
    """AP and agreement against the baseline's: its matches and draws are made once."""

    def __init__(self, dataset: Dataset, baseline: Detections) -> None:
        self._evaluator = CocoEvaluator(dataset)
        self._weight = draw_images(dataset.labelled_count) if dataset.labelled_count else None
        self._baseline = self._measured(baseline)
        self._agreement = Agreement(baseline, dataset.sizes, len(dataset.categories))
        self._drawn = draw_images(len(dataset.images))

    def _measured(self, detections: Detections) -> tuple[CocoResult, Draws] | None:
        if self._weight is None:
            return None
        result = self._evaluator.evaluate(detections, sizes=False)
        return result, bootstrap(result, self._weight)

    def __call__(self, detections: Detections) -> Compared:
        baseline, run = self._baseline, self._measured(detections)
        quality, baseline_ap, losses = None, None, {}
        if baseline is not None and run is not None:
            baseline_ap = baseline[1].summary["AP"]
            if baseline[0].summary["AP"] >= 0:
                quality = compare(*baseline, *run, per_class=False).metrics["AP"]
                losses["AP"] = accuracy_loss(quality.difference, baseline_ap, run[1].summary["AP"])
        averaged, pooled = self._agreement.resampled(detections, self._drawn)
        losses["agreement_AP"] = agreement_loss(*averaged, baseline_ap)
        losses["agreement_AP" + POOLED] = agreement_loss(*pooled, baseline_ap)
        return Compared(quality, {name: loss for name, loss in losses.items() if loss is not None}, averaged[1].drawn)


def _gain(dataset: Dataset, baseline: Detections, first: Detections, second: Detections) -> Interval:
    agreement, weight = Agreement(baseline, dataset.sizes, len(dataset.categories)), draw_images(len(dataset.images))
    (before, drawn_before), (after, drawn_after) = (agreement.resampled(run, weight)[0] for run in (first, second))
    return Interval(after - before, *difference_interval(after - before, drawn_before, drawn_after))


_loss: Callable[[Dataset, Detections], Callable[[Detections], Compared]] = _Loss
DETECTION_KIT: Kit[Detections] = Kit(
    DETECTION,
    _decoder,
    _protocol,
    Meter,
    detection_image_order,
    DetectionUpperBounds,
    measure_detections,
    _loss,
    _gain,
    METHOD,
    detections_json,
    read_detections,
)
