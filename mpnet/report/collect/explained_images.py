# SPDX-License-Identifier: MIT
"""Images of the objects that `mpnet explain` explains."""

from __future__ import annotations

from pathlib import Path

from mpnet.diagnose.explain import Explanation
from mpnet.evaluation.metrics import size_of
from mpnet.report.collect.images import Gallery, write_changes
from mpnet.report.data.differences import ObjectChange
from mpnet.trial.identity import protocol_of
from mpnet.trial.reopen import image_loader


def write_objects(explanation: Explanation, folder: Path) -> list[str]:
    """Write an image of each object, baseline left and configuration right, as folder/NNN-kind-class.jpg; return the names.

    Raises: DataError when an image is gone or broken.
    """
    dataset = explanation.bench.dataset
    crops = []
    for explained in explanation.explained:
        lost_object = explained.object
        x, y, width, height = lost_object.box
        record, name = dataset.images[lost_object.position], dataset.names[lost_object.category]
        box = (x, y, x + width, y + height)
        size, score = size_of(lost_object.area), lost_object.baseline_score
        crops.append(ObjectChange(lost_object.kind, record.path, name, score, 0.0, box, size))
    gallery = Gallery(dataset, *explanation.detections, image_loader(protocol_of(explanation.bench)))
    return write_changes(gallery.changes(crops, len(crops), captions=True), folder)
