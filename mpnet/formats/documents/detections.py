# SPDX-License-Identifier: MIT
"""Detections <-> COCO results JSON, the form in which runs keep them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections
from mpnet.errors import FormatError
from mpnet.formats.documents.json_text import box, integer, number, read_json
from mpnet.messages import named, shown


def detections_json(detections: Detections, dataset: Dataset) -> bytes:
    """Return COCO results as UTF-8 JSON, one detection per line, by image, class and falling score.

    Boxes are clipped to the images. Nine significant digits give every float32 back exactly, so that metrics of the
    file equal those of the arrays; the same detections give the same bytes.
    """
    clipped = detections.clipped(dataset.sizes)
    image_ids = [image.id for image in dataset.images]
    category_ids = [category.id for category in dataset.categories]
    lines = [
        f'{{"image_id":{image_ids[index]},"category_id":{category_ids[category]},'
        f'"bbox":[{x:.9g},{y:.9g},{width:.9g},{height:.9g}],"score":{score:.9g}}}'
        for index, category, (x, y, width, height), score in zip(
            clipped.image_index.tolist(), clipped.category.tolist(), clipped.box.tolist(), clipped.score.tolist(), strict=True
        )
    ]
    return ("[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n").encode()


def read_detections(path: Path | str, dataset: Dataset) -> Detections:
    """Read the detections of a COCO results file that are of the data set's images.

    Raises: DataError when it cannot be read, FormatError naming the record for what is not a detection or has an
    image or category that the data set lacks.
    """
    document = read_json(path)
    if not isinstance(document, list):
        raise FormatError(f"{named(path)}: COCO results are a list of detections, not {shown(document)}")
    image_position = {image.id: position for position, image in enumerate(dataset.images)}
    category_position = {category.id: position for position, category in enumerate(dataset.categories)}
    images: list[int] = []
    categories: list[int] = []
    scores: list[float] = []
    boxes: list[list[float]] = []
    for position, record in enumerate(document):
        location = f"{named(path)}: [{position}]"
        if not isinstance(record, dict):
            raise FormatError(f"{location}: a detection is an object, not {shown(record)}")
        image_id, category_id = integer(record, "image_id", location), integer(record, "category_id", location)
        if image_id not in image_position:
            raise FormatError(f"{location}: image_id {image_id} is not in the data set; evaluate with its own")
        if category_id not in category_position:
            raise FormatError(f"{location}: category_id {category_id} is not in the data set; evaluate with its own")
        score = number(record, "score", location)
        if abs(score) > 1e6:
            raise FormatError(f"{location}: score {score} is beyond any probability")
        images.append(image_position[image_id])
        categories.append(category_position[category_id])
        scores.append(score)
        boxes.append(box(record, "bbox", location))
    return Detections.of(len(dataset.images), images, categories, scores, np.array(boxes, dtype=np.float32))
