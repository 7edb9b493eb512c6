# SPDX-License-Identifier: MIT
"""YOLO labels (one text file per image, `class cx cy w h` relative to it) -> Dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

from mpnet.data.dataset import MAX_CATEGORIES, Category, Dataset, ImageRecord
from mpnet.errors import DataError, FormatError
from mpnet.formats.files.bounded import read_text_bounded
from mpnet.formats.files.paths import COMPANION, compose
from mpnet.formats.images.frames import VIDEO_SUFFIXES
from mpnet.formats.images.read import SUFFIXES, probe_all, unread_kinds
from mpnet.formats.labels.duplicates import NO_OBJECT, LabelledObject, without_duplicates
from mpnet.formats.labels.lines import LabelKinds, parse_labels
from mpnet.messages import named, reason_of, shown

MAX_TEXT_BYTES = 16 * 1024 * 1024


def read_names(path: Path | str) -> tuple[str, ...]:
    """Return the class names, one per line, in index order; empty lines at the end do not count.

    Raises: DataError when the file cannot be read, FormatError for no names, an empty line between or binary content.
    """
    lines = [line.strip() for line in read_text(path).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise FormatError(f"{named(path)}: holds no class names; write one per line")
    if len(lines) > MAX_CATEGORIES:
        raise FormatError(f"{named(path)}: {len(lines)} class names are more than {MAX_CATEGORIES}")
    for number, line in enumerate(lines, 1):
        if not line or not line.isprintable():
            raise FormatError(f"{named(path)}:{number}: {shown(line)} is no class name; write one per line")
    return tuple(lines)


def read_yolo(
    images: Path | str, labels: Path | str, names: Sequence[str], *, limit: int | None = None, is_turned: bool = False
) -> Dataset:
    """Read the images of a folder with the label files of the same stem in another.

    Images by file name; image ids are 1, 2, ..., category ids class index + 1, areas width * height.
    An image without a label file has no objects (said in `notes`). limit: only the first images.
    is_turned: whether EXIF turns the images.
    Raises: DataError for folders or files that cannot be read, FormatError with file and line for bad labels.
    """
    image_folder, label_folder = Path(images), Path(labels)
    files = list_files(image_folder, SUFFIXES, "images", "data.images")
    if not files:
        unread = unread_kinds(image_folder)
        kinds = f", but {unread}; convert them, for example to PNG" if unread else "; check data.images"
        raise DataError(f"{named(image_folder)}: holds no images ({' '.join(SUFFIXES)}){kinds}")
    stems: dict[str, Path] = {}
    for file in files:
        if file.stem in stems:
            raise DataError(
                f"{named(file)}: {named(stems[file.stem].name)} has the same stem and so the same label file; rename one"
            )
        stems[file.stem] = file
    written = {file.stem: file for file in list_files(label_folder, (".txt",), "labels", "data.labels")}
    by_form = {compose(stem): stem for stem in written}
    # Label files under the names of their images, whichever way either writes its accents.
    spelt = {by_form[compose(stem)]: stem for stem in stems if stem not in written and compose(stem) in by_form}
    texts = {spelt.get(stem, stem): file for stem, file in written.items()}
    if not texts.keys() & stems.keys():
        raise DataError(
            f"{named(label_folder)}: no label file has the name of an image in {named(image_folder)}; check data.labels"
        )
    selected = files[:limit]
    records = probe_all(selected, is_turned)
    objects, notes = read_objects(records, [texts.get(file.stem) for file in selected], len(names))
    categories = [Category(index + 1, name) for index, name in enumerate(names)]
    return Dataset.of(records, categories, objects, (*_notes(selected, texts, stems), *notes))


def read_objects(
    records: Sequence[ImageRecord], texts: Sequence[Path | None], class_count: int, keypoints: tuple[int, int] | None = None
) -> tuple[list[LabelledObject], tuple[str, ...]]:
    """Read the objects of all images, each once, with boxes in pixels; and what a reader should know of their lines.

    texts:     the label file of each image, None for one without.
    keypoints: (points, numbers a point) where the data set says that its lines have them.
    Raises: DataError, FormatError as `parse_labels`.
    """
    kinds = LabelKinds(keypoints)
    objects: list[LabelledObject] = []
    for position, (text, record) in enumerate(zip(texts, records, strict=True)):
        if text is None:
            continue
        for index, (cx, cy, w, h) in parse_labels(read_text(text), text, class_count, kinds):
            pixels = [(cx - w / 2) * record.width, (cy - h / 2) * record.height, w * record.width, h * record.height]
            objects.append((position, index, pixels, pixels[2] * pixels[3], False))
    distinct, duplicates = without_duplicates(objects, records)
    notes = (*kinds.notes(), *duplicates)
    return distinct, notes if objects else (*notes, NO_OBJECT)


def _notes(selected: Sequence[Path], texts: dict[str, Path], stems: dict[str, Path]) -> tuple[str, ...]:
    notes: list[str] = []
    without = [file.name for file in selected if file.stem not in texts]
    if without:
        notes.append(
            f"{len(without)} of {len(selected)} images have no label file and count as empty, for example {shown(without[0])}"
        )
    orphans = sorted(stem for stem in texts if stem not in stems and stem != "classes")
    if orphans:
        notes.append(f"{len(orphans)} label files belong to no image, for example {shown(orphans[0] + '.txt')}")
    return tuple(notes)


def list_files(folder: Path, suffixes: tuple[str, ...], what: str, key: str) -> list[Path]:
    """List the files of a folder with one of some suffixes, by name. Raises: DataError naming the `key` that names it."""
    try:
        return sorted(
            (
                entry
                for entry in folder.iterdir()
                if entry.suffix.lower() in suffixes and not entry.name.startswith(COMPANION) and entry.is_file()
            ),
            key=lambda entry: entry.name,
        )
    except (OSError, ValueError) as error:
        remedy = "a video goes in data.unlabelled" if folder.suffix.lower() in VIDEO_SUFFIXES else f"check {key}"
        raise DataError(f"{named(folder)}: the folder of {what} cannot be read ({reason_of(error)}); {remedy}") from None


def read_text(path: Path | str) -> str:
    r"""Read a text of labels or names, its line ends as `\n`. Raises: DataError, FormatError for what is no UTF-8 text."""
    text = read_text_bounded(path, MAX_TEXT_BYTES, "text of labels or names", "a label or names file")
    return text.replace("\r\n", "\n").replace("\r", "\n")
