# SPDX-License-Identifier: MIT
"""Average precision of a network on labelled scenes, in floating point and with every convolution in int8."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from demo_training.data import resized, to_batch
from demo_training.loss import decode
from demo_training.network import MASKS, Convolution, TinyYolo
from mpnet.demo.scenes import SIZE

SCORE_THRESHOLD = 0.005
NMS_IOU = 0.45
MAX_DETECTIONS = 100


def _suppress(boxes: NDArray[np.float32], scores: NDArray[np.float32]) -> list[int]:
    """Return the indices kept by greedy suppression, best first."""
    order = scores.argsort(kind="stable")[::-1]
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    keep = []
    while len(order):
        best, remaining = order[0], order[1:]
        keep.append(int(best))
        width = np.minimum(boxes[best, 2], boxes[remaining, 2]) - np.maximum(boxes[best, 0], boxes[remaining, 0])
        height = np.minimum(boxes[best, 3], boxes[remaining, 3]) - np.maximum(boxes[best, 1], boxes[remaining, 1])
        inter = width.clip(0) * height.clip(0)
        order = remaining[inter <= NMS_IOU * (area[best] + area[remaining] - inter)]
    return keep


def _detections(boxes: NDArray[np.float32], scores: NDArray[np.float32], image: int) -> list[dict[str, Any]]:
    """Return one image's detections in COCO form. boxes: (n, 4); scores: (n, classes)."""
    detections = []
    for label in range(scores.shape[1]):
        candidates = np.flatnonzero(scores[:, label] > SCORE_THRESHOLD)
        for k in _suppress(boxes[candidates], scores[candidates, label]):
            x0, y0, x1, y1 = (float(v) for v in boxes[candidates[k]])
            detections.append(
                {
                    "image_id": image,
                    "category_id": label + 1,
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "score": float(scores[candidates[k], label]),
                }
            )
    return sorted(detections, key=lambda d: -float(d["score"]))[:MAX_DETECTIONS]


@torch.no_grad()
def average_precision(
    net: TinyYolo,
    images: NDArray[np.uint8],
    labels: NDArray[np.int16],
    anchors: torch.Tensor,
    convolve: Convolution | None = None,
    side: int = SIZE,
) -> dict[str, float]:
    """Return "AP" (IoU 0.50 to 0.95), "AP50", "AP75" and AP per class index, each in [0, 1]."""
    net.eval()
    detections: list[dict[str, Any]] = []
    for start in range(0, len(images), 20):
        maps = net(resized(to_batch(images[start : start + 20]), side), convolve)
        boxes, scores = [], []
        for raw, mask in zip(maps, MASKS, strict=True):
            b, logits = decode(raw, anchors[list(mask)])
            probability = torch.sigmoid(logits[..., :1]) * torch.sigmoid(logits[..., 1:])
            boxes.append(b.reshape(len(b), -1, 4))
            scores.append(probability.reshape(len(b), -1, probability.shape[-1]))
        all_boxes, all_scores = torch.cat(boxes, 1).numpy(), torch.cat(scores, 1).numpy()
        for k in range(len(all_boxes)):
            detections += _detections(all_boxes[k], all_scores[k], start + k + 1)
    return _coco(detections, labels)


def _coco(detections: list[dict[str, Any]], labels: NDArray[np.int16]) -> dict[str, float]:
    classes = int(labels[..., 0].max()) + 1
    truth: list[dict[str, Any]] = []
    for image, rows in enumerate(labels, 1):
        for label, x0, y0, x1, y1 in rows[rows[:, 0] >= 0].tolist():
            box = [x0, y0, x1 - x0, y1 - y0]
            entry = {"image_id": image, "category_id": label + 1, "bbox": box, "area": box[2] * box[3]}
            truth.append({**entry, "iscrowd": 0, "id": len(truth) + 1})
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = {
            "images": [{"id": k + 1} for k in range(len(labels))],
            "annotations": truth,
            "categories": [{"id": k + 1} for k in range(classes)],
        }
        coco.createIndex()
        if not detections:
            names = ["AP", "AP50", "AP75", "small", "medium", "large", *map(str, range(classes))]
            return dict.fromkeys(names, 0.0)
        evaluation = COCOeval(coco, coco.loadRes(detections), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    result = {"AP": float(evaluation.stats[0]), "AP50": float(evaluation.stats[1]), "AP75": float(evaluation.stats[2])}
    result |= {"small": float(evaluation.stats[3]), "medium": float(evaluation.stats[4]), "large": float(evaluation.stats[5])}
    precision = evaluation.eval["precision"][:, :, :, 0, 2]  # IoU x recall x class
    return result | {str(k): float(precision[:, :, k].mean()) for k in range(classes)}
