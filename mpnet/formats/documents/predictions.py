# SPDX-License-Identifier: MIT
"""Classifications <-> JSON, the form in which runs of classifiers keep them."""

from __future__ import annotations

from pathlib import Path

from mpnet.data.classifications import KEPT, Classifications
from mpnet.data.dataset import Dataset
from mpnet.errors import FormatError
from mpnet.formats.documents.json_text import integer, number, read_json
from mpnet.json_values import Json, JsonObject
from mpnet.messages import named, shown

MAX_SCORE = 1e30
"""Well within float32."""


def predictions_json(classifications: Classifications, dataset: Dataset) -> bytes:
    """Write the best classes of each image as UTF-8 JSON, one image a line, in the data set's order.

    Nine significant digits give every float32 back exactly; the same classifications give the same bytes.
    """
    ids = [category.id for category in dataset.categories]
    lines = [
        f'{{"image_id":{image.id},"category_ids":[{",".join(str(ids[c]) for c in classes)}],'
        f'"scores":[{",".join(f"{score:.9g}" for score in scores)}]}}'
        for image, classes, scores in zip(
            dataset.images, classifications.category.tolist(), classifications.score.tolist(), strict=True
        )
    ]
    return ("[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n").encode()


def read_predictions(path: Path | str, dataset: Dataset) -> Classifications:
    """Read the classifications of exactly the data set's images.

    Raises: DataError when the file cannot be read, FormatError naming the record for what is none, is of another image,
    or has a class that the data set lacks.
    """
    document = read_json(path)
    if not isinstance(document, list) or len(document) != len(dataset.images):
        raise FormatError(
            f"{named(path)}: classifications of these images are a list of {len(dataset.images)}, not "
            f"{len(document) if isinstance(document, list) else shown(document)}"
        )
    position = {category.id: index for index, category in enumerate(dataset.categories)}
    class_count = min(KEPT, len(dataset.categories))
    categories: list[list[int]] = []
    scores: list[list[float]] = []
    for index, (record, image) in enumerate(zip(document, dataset.images, strict=True)):
        location = f"{named(path)}: [{index}]"
        if not isinstance(record, dict):
            raise FormatError(f"{location}: a classification is an object, not {shown(record)}")
        if integer(record, "image_id", location) != image.id:
            raise FormatError(f"{location}: image_id {record['image_id']} where the data set has {image.id}; run again")
        listed = _list(record, "category_ids", class_count, location)
        classes = [integer({"category_ids": identity}, "category_ids", location) for identity in listed]
        unknown = [identity for identity in classes if identity not in position]
        if unknown:
            raise FormatError(f"{location}: category id {unknown[0]} is not in the data set; evaluate with its own")
        values = [number({"scores": value}, "scores", location) for value in _list(record, "scores", class_count, location)]
        if max(map(abs, values)) > MAX_SCORE:
            raise FormatError(f"{location}: 'scores' holds one beyond {MAX_SCORE:g}")
        categories.append([position[identity] for identity in classes])
        scores.append(values)
    try:
        return Classifications.of(categories, scores, len(dataset.categories))
    except ValueError as error:
        raise FormatError(f"{named(path)}: {shown(str(error))}; run again") from None


def _list(record: JsonObject, key: str, count: int, location: str) -> list[Json]:
    values = record.get(key)
    if not isinstance(values, list) or len(values) != count:
        raise FormatError(f"{location}: {key!r} must be a list of {count}, not {shown(values)}")
    return values
