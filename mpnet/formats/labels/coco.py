# SPDX-License-Identifier: MIT
"""COCO ground truth (instances JSON) -> Dataset."""

from __future__ import annotations

import itertools
from pathlib import Path, PurePosixPath
from typing import Sequence

from mpnet.data.dataset import MAX_CATEGORIES, Category, Dataset, ImageRecord
from mpnet.errors import DataError, FormatError
from mpnet.formats.documents.json_text import box, integer, number, read_json, records
from mpnet.formats.files.paths import find_by_any_form
from mpnet.formats.images.read import probe
from mpnet.formats.labels.class_match import ClassMatch, match_classes
from mpnet.formats.labels.duplicates import NO_OBJECT, LabelledObject, without_duplicates
from mpnet.json_values import Json
from mpnet.messages import all_at_once, named, shown


def read_coco(
    annotations: Path | str,
    images: Path | str,
    *,
    names: Sequence[str] | None = None,
    limit: int | None = None,
    is_turned: bool = False,
) -> Dataset:
    """Read the labelled images of an instances file.

    images: folder of the image files. limit: only the first images by rising image id. is_turned: whether EXIF turns them.
    names:  the network's class names in index order, with which the file's categories are matched (`match_classes`); a class
            that the file lacks gets a category without objects. None: categories by rising ids.
    Raises: DataError for files that cannot be read or images that are missing or of another size, FormatError for
    content that is not what the format asks for; both name the file and the record.
    """
    document = read_json(annotations)
    file_categories = _categories(document, annotations)
    file_index = {category.id: index for index, category in enumerate(file_categories)}
    listed = _images(document, annotations)
    chosen = sorted(listed)[:limit]
    image_position = {identity: position for position, identity in enumerate(chosen)}
    counts = [0] * len(file_categories)
    objects: list[LabelledObject] = []
    for location, record in records(document, "annotations", annotations):
        image_id, category_id = integer(record, "image_id", location), integer(record, "category_id", location)
        if image_id not in listed:
            raise FormatError(f"{location}: image_id {image_id} is not among the images")
        if category_id not in file_index:
            raise FormatError(f"{location}: category_id {category_id} is not among the categories")
        crowd = record.get("iscrowd", 0)
        if crowd not in (0, 1):
            raise FormatError(f"{location}: 'iscrowd' must be 0 or 1, not {shown(crowd)}")
        corners = box(record, "bbox", location)
        area = number(record, "area", location) if "area" in record else corners[2] * corners[3]
        if area < 0:
            raise FormatError(f"{location}: 'area' is negative ({area})")
        counts[file_index[category_id]] += 1
        if image_id in image_position:
            objects.append((image_position[image_id], file_index[category_id], corners, area, bool(crowd)))
    image_records, broken = [], []
    for identity in chosen:
        try:
            image_records.append(_record(identity, *listed[identity], Path(images), annotations, is_turned))
        except DataError as error:
            broken.append(str(error))
    if broken:
        raise DataError(all_at_once(broken, len(chosen), "images"))
    titles = [category.name for category in file_categories]
    match = match_classes(titles, titles if names is None else names, counts, named(annotations))
    categories = file_categories if names is None else _by_class(file_categories, match, names)
    rows = [(row[0], index, *row[2:]) for row in objects if (index := match.class_indices[row[1]]) is not None]
    rows, duplicates = without_duplicates(rows, image_records)
    return Dataset.of(image_records, categories, rows, (*match.notes, *duplicates, *(() if rows else (NO_OBJECT,))))


def _by_class(categories: tuple[Category, ...], match: ClassMatch, names: Sequence[str]) -> tuple[Category, ...]:
    """Return the file's categories in the order of the network's classes; one that the file lacks gets a new id."""
    pairs = zip(match.class_indices, categories, strict=True)
    category_of = {index: category for index, category in pairs if index is not None}
    new_ids = itertools.count(1 + max(category.id for category in categories))
    return tuple(category_of.get(index) or Category(next(new_ids), name) for index, name in enumerate(names))


def category_names(annotations: Path | str) -> tuple[str, ...]:
    """Return the names of an instances file's categories, by rising id. Raises: as `read_coco`."""
    return tuple(category.name for category in _categories(read_json(annotations), annotations))


def _categories(document: Json, name: Path | str) -> tuple[Category, ...]:
    """Return the categories by rising id."""
    categories: list[Category] = []
    for location, record in records(document, "categories", name):
        identity = integer(record, "id", location)
        title = record.get("name")
        if not isinstance(title, str):
            raise FormatError(f"{location}: 'name' must be text, not {shown(title)}")
        categories.append(Category(identity, title))
    if not 1 <= len(categories) <= MAX_CATEGORIES:
        raise FormatError(f"{named(name)}: has {len(categories)} categories; 1 to {MAX_CATEGORIES} are possible")
    return tuple(sorted(categories, key=lambda category: category.id))


def _images(document: Json, name: Path | str) -> dict[int, tuple[str, int, int]]:
    """Return the file name, width and height by id."""
    images: dict[int, tuple[str, int, int]] = {}
    for location, record in records(document, "images", name):
        identity = integer(record, "id", location)
        file_name = record.get("file_name")
        if not isinstance(file_name, str) or not file_name or "\0" in file_name:
            raise FormatError(f"{location}: 'file_name' must be text, not {shown(file_name)}")
        parts = PurePosixPath(file_name)
        if parts.is_absolute() or ".." in parts.parts:
            raise FormatError(f"{location}: 'file_name' {shown(file_name)} leaves the images folder; use names inside it")
        images[identity] = (file_name, integer(record, "width", location), integer(record, "height", location))
    if not images:
        raise FormatError(f"{named(name)}: lists no images")
    return images


def _record(
    identity: int, file_name: str, width: int, height: int, folder: Path, name: Path | str, is_turned: bool
) -> ImageRecord:
    path = find_by_any_form(folder / file_name)
    if not path.is_file():
        raise DataError(f"{named(path)}: missing, but listed in {named(name)} (image id {identity}); check the images folder")
    record = probe(path, identity, is_turned)
    if (record.width, record.height) != (width, height):
        raise DataError(
            f"{named(path)}: is {record.width} x {record.height} pixels, but {named(name)} says "
            f"{width} x {height}; {_remedy(record, width, height)}"
        )
    return record


def _remedy(record: ImageRecord, width: int, height: int) -> str:
    """Return what to do about an image of another size than its annotations say."""
    if record.exif_orientation >= 5 and (record.width, record.height) == (height, width):
        if record.is_turned:
            return "that is how it is stored, before EXIF turns it; set data.orientation: stored"
        return "EXIF turns it to that; set data.orientation: exif"
    return "the labels would not fit"
