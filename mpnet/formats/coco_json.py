"""COCO ground truth (instances JSON) -> Dataset."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any, Sequence

from mpnet.errors import DataError, FormatError
from mpnet.formats.images import probe
from mpnet.formats.json_text import box, integer, number, read_json, records
from mpnet.messages import named, shown
from mpnet.spec.dataset import MAX_CATEGORIES, Category, Dataset, ImageRecord


def read_coco(
    annotations: Path | str, images: Path | str, *, names: Sequence[str] | None = None, limit: int | None = None
) -> Dataset:
    """The labelled pictures of an instances file.

    images: folder of the picture files. limit: only the first pictures by rising image id.
    names:  the network's class names in index order. When they are the file's category names, categories take their
            order; else, when as many, the order of rising category ids (names lists spell COCO's classes in several
            ways). None: rising ids.
    Raises: DataError for files that cannot be read or pictures that are missing or of another size, FormatError for
    content that is not what the format asks for; both name the file and the record.
    """
    document = read_json(annotations)
    categories = _categories(document, annotations, names)
    category_position = {category.id: position for position, category in enumerate(categories)}
    listed = _images(document, annotations)
    chosen = sorted(listed, key=lambda item: item[0])[:limit]
    image_position = {item[0]: position for position, item in enumerate(chosen)}
    known = {item[0] for item in listed}
    rows: list[tuple[int, int, list[float], float, bool]] = []
    seen: set[int] = set()
    for position, record in enumerate(records(document, "annotations", annotations)):
        place = f"{named(annotations)}: annotations[{position}]"
        if "id" in record:
            identity = integer(record, "id", place)
            if identity in seen:
                raise FormatError(f"{place}: id {identity} was used before; ids must differ")
            seen.add(identity)
        image_id, category_id = integer(record, "image_id", place), integer(record, "category_id", place)
        if image_id not in known:
            raise FormatError(f"{place}: image_id {image_id} is not among the images")
        if category_id not in category_position:
            raise FormatError(f"{place}: category_id {category_id} is not among the categories")
        crowd = record.get("iscrowd", 0)
        if crowd not in (0, 1):
            raise FormatError(f"{place}: 'iscrowd' must be 0 or 1, not {shown(crowd)}")
        corners = box(record, "bbox", place)
        area = number(record, "area", place) if "area" in record else corners[2] * corners[3]
        if area < 0:
            raise FormatError(f"{place}: 'area' is negative ({area})")
        if image_id in image_position:
            rows.append((image_position[image_id], category_position[category_id], corners, area, bool(crowd)))
    return Dataset.of([_record(item, Path(images), annotations) for item in chosen], categories, rows)


def _categories(document: Any, name: Path | str, names: Sequence[str] | None) -> tuple[Category, ...]:
    found: dict[int, Category] = {}
    for position, record in enumerate(records(document, "categories", name)):
        place = f"{named(name)}: categories[{position}]"
        identity = integer(record, "id", place)
        if identity in found:
            raise FormatError(f"{place}: id {identity} was used before; ids must differ")
        title = record.get("name")
        if not isinstance(title, str):
            raise FormatError(f"{place}: 'name' must be text, not {shown(title)}")
        found[identity] = Category(identity, title)
    if not 1 <= len(found) <= MAX_CATEGORIES:
        raise FormatError(f"{named(name)}: has {len(found)} categories; 1 to {MAX_CATEGORIES} are possible")
    by_id = [found[identity] for identity in sorted(found)]
    if names is None:
        return tuple(by_id)
    by_name = {category.name: category for category in by_id}
    if len(by_name) == len(by_id) and len(set(names)) == len(names) and set(names) == set(by_name):
        return tuple(by_name[title] for title in names)
    if len(names) != len(by_id):
        raise DataError(f"{named(name)}: has {len(by_id)} categories, but the network names {len(names)} classes; "
                        "give the annotations and names of one data set")
    return tuple(by_id)


def _images(document: Any, name: Path | str) -> list[tuple[int, str, int, int]]:
    found: list[tuple[int, str, int, int]] = []
    seen: set[int] = set()
    for position, record in enumerate(records(document, "images", name)):
        place = f"{named(name)}: images[{position}]"
        identity = integer(record, "id", place)
        if identity in seen:
            raise FormatError(f"{place}: id {identity} was used before; ids must differ")
        seen.add(identity)
        file_name = record.get("file_name")
        if not isinstance(file_name, str) or not file_name or "\0" in file_name:
            raise FormatError(f"{place}: 'file_name' must be text, not {shown(file_name)}")
        parts = PurePosixPath(file_name)
        if parts.is_absolute() or ".." in parts.parts:
            raise FormatError(f"{place}: 'file_name' {shown(file_name)} leaves the images folder; use names inside it")
        found.append((identity, file_name, integer(record, "width", place), integer(record, "height", place)))
    if not found:
        raise FormatError(f"{named(name)}: lists no images")
    return found


def _record(item: tuple[int, str, int, int], folder: Path, name: Path | str) -> ImageRecord:
    identity, file_name, width, height = item
    path = folder / file_name
    if not path.is_file():
        raise DataError(f"{named(path)}: missing, but listed in {named(name)} (image id {identity}); "
                        "check the images folder")
    info = probe(path)
    if (info.width, info.height) != (width, height):
        raise DataError(f"{named(path)}: is {info.width} x {info.height} pixels, but {named(name)} says "
                        f"{width} x {height}; the labels would not fit")
    return ImageRecord(identity, str(path), width, height, info.sha256)
