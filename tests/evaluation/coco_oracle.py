# SPDX-License-Identifier: MIT
"""The same metrics through pycocotools itself: what ours must equal."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections
from mpnet.evaluation.match import check_images
from mpnet.evaluation.metrics import PERCENT, CocoEvaluator

# Position of each metric in COCOeval.stats.
STATS = ("AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large", "AR1", "AR10", "AR100", "AR_small", "AR_medium", "AR_large")


def pycocotools_summary(dataset: Dataset, detections: Detections) -> dict[str, float]:
    """Return COCOeval's twelve numbers in percent (-1 where it has nothing to measure); prints nothing.

    Annotation ids are given anew from 1, since COCOeval takes a match with annotation 0 for none.
    Raises: DataError for detections of other images or classes.
    """
    check_images(detections, CocoEvaluator(dataset).truths)
    clipped = detections.clipped(dataset.sizes)
    truth: dict[str, Any] = {
        "images": [{"id": image.id, "width": image.width, "height": image.height} for image in dataset.images],
        "categories": [{"id": category.id, "name": category.name} for category in dataset.categories],
        "annotations": [
            {
                "id": number,
                "image_id": dataset.images[index].id,
                "category_id": dataset.categories[category].id,
                "bbox": box,
                "area": area,
                "iscrowd": int(crowd),
            }
            for number, (index, category, box, area, crowd) in enumerate(
                zip(
                    dataset.image_index.tolist(),
                    dataset.category.tolist(),
                    dataset.box.tolist(),
                    dataset.area.tolist(),
                    dataset.crowd.tolist(),
                    strict=True,
                ),
                1,
            )
        ],
    }
    results = [
        {"image_id": dataset.images[index].id, "category_id": dataset.categories[category].id, "bbox": box, "score": score}
        for index, category, box, score in zip(
            clipped.image_index.tolist(), clipped.category.tolist(), clipped.box.tolist(), clipped.score.tolist(), strict=True
        )
    ]
    if not results:  # COCO.loadRes cannot take an empty list
        has_truths = bool(len(dataset.image_index) and not dataset.crowd.all())
        summary = CocoEvaluator(dataset).evaluate(detections).summary if has_truths else dict.fromkeys(STATS, -1.0)
        return {name: summary[name] for name in STATS}
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = truth
        coco.createIndex()
        evaluation = COCOeval(coco, coco.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    stats = np.asarray(evaluation.stats, dtype=np.float64)
    return {name: float(value * PERCENT if value > -1 else -1.0) for name, value in zip(STATS, stats, strict=True)}
