# SPDX-License-Identifier: MIT
"""Data sets as training programs describe them, Darknet's .data or list of images and Ultralytics' data.yaml -> Dataset.

Both list images; the labels of `images/x.jpg` are in `labels/x.txt`, one `class cx cy w h` a line.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from dataclasses import dataclass
from os.path import exists, isdir, isfile
from pathlib import Path, PurePath
from typing import Iterator, Sequence

from mpnet.data.dataset import MAX_CATEGORIES, Category, Dataset
from mpnet.errors import DataError, FormatError
from mpnet.formats.documents.yaml_tree import Mapping, Node, Scalar, read_yaml_file
from mpnet.formats.documents.yaml_tree import Sequence as YamlSequence
from mpnet.formats.files.bounded import read_text_bounded
from mpnet.formats.files.paths import find_by_any_form
from mpnet.formats.images.read import SUFFIXES, is_image_name, probe_all
from mpnet.formats.labels.class_match import match_classes
from mpnet.formats.labels.yolo import read_names, read_objects, read_text
from mpnet.messages import named, reason_of, shown

MAX_LIST_BYTES = 256 * 1024 * 1024
DEEPEST = 4
"""Folders below one of images that are looked through."""
ANCESTORS = 4
"""How many folders above a file its relative paths may count from: Darknet's count from where it was started."""


@dataclass(frozen=True)
class Listed:
    """images: those to evaluate on. names: of the classes, None where the file does not say.

    training: the images that the network was trained on, as far as the file says.
    keypoints: (points, numbers a point) of each label line, as `kpt_shape` says; None where the file does not.
    """

    images: tuple[Path, ...]
    names: tuple[str, ...] | None
    training: frozenset[Path] = frozenset()
    keypoints: tuple[int, int] | None = None


def read_listed(
    file: Path | str,
    images: Path | str | None = None,
    names: Sequence[str] | None = None,
    *,
    limit: int | None = None,
    is_turned: bool = False,
) -> Dataset:
    """Read the images that a .data, a list of images or a data.yaml names for validation, with their labels.

    images: the folder that relative paths count from, None: that of the file, one above it, or the present one, in which they
    are there. names: of the network's classes, with which the file's are matched (`match_classes`); None: as the file says.
    limit: only the first images. is_turned: whether EXIF turns them.
    Ids are 1, 2, ... in the file's order; an image without a label file has no objects (said
    in `notes`).
    Raises: DataError for what cannot be read or names no images, FormatError with file and line for bad labels,
    or no names.
    """
    listed = describe_listed(file, images)
    classes, titles = names or listed.names, listed.names or names
    if classes is None or titles is None:
        raise FormatError(f"{named(file)}: names no classes; name them with model.names")
    chosen = listed.images[:limit]
    texts = [_label_file(image) for image in chosen]
    records = probe_all(chosen, is_turned)
    if not any(map(isfile, texts)):
        raise DataError(
            f"{named(texts[0])}: no such file, and no other image of {named(file)} has labels either; they "
            "stand in `labels/` for images in `images/`, or beside their images"
        )
    labelled, line_notes = read_objects(
        records, [text if isfile(text) else None for text in texts], len(titles), listed.keypoints
    )
    counts = Counter(index for _, index, *_ in labelled)
    match = match_classes(titles, classes, [counts[index] for index in range(len(titles))], named(file))
    objects = [(row[0], index, *row[2:]) for row in labelled if (index := match.class_indices[row[1]]) is not None]
    notes = [*match.notes, *line_notes]
    without = [image for image, text in zip(chosen, texts, strict=True) if not isfile(text)]
    if without:
        notes.append(
            f"{len(without)} of {len(chosen)} images have no label file and count as empty, "
            f"for example {shown(without[0].name)}"
        )
    trained = [image for image in chosen if image in listed.training]
    if trained:
        notes.append(
            f"{len(trained)} of {len(chosen)} images are in the training list as well, so figures flatter the "
            f"network, for example {shown(trained[0].name)}"
        )
    return Dataset.of(records, [Category(index + 1, name) for index, name in enumerate(classes)], objects, notes)


def describe_listed(file: Path | str, images: Path | str | None = None) -> Listed:
    """Read a .data, a list of images or a data.yaml. Raises: DataError, FormatError, ConfigError."""
    path = Path(file)
    bases = [Path(images)] if images is not None else [*_folders_from(path.parent), Path()]
    if path.suffix in (".yaml", ".yml"):
        return _ultralytics(path, bases)
    if path.suffix == ".data":
        return _darknet(path, bases)
    return Listed(_listed(path, bases), None)


def _folders_from(folder: Path) -> list[Path]:
    return [folder, *itertools.islice(folder.absolute().parents, ANCESTORS)]


def _darknet(path: Path, bases: list[Path]) -> Listed:
    """Read `key = value` lines; `valid`, `names` and `train` count."""
    entries: dict[str, str] = {}
    for number, line in enumerate(read_text(path).split("\n"), 1):
        text = line.partition("#")[0].strip()
        key, equals, value = text.partition("=")
        if text and not equals:
            raise FormatError(f"{named(path)}:{number}: {shown(text)} is not of the form key = value")
        entries[key.strip()] = value.strip()
    if not entries.get("valid"):
        raise FormatError(f"{named(path)}: names no `valid` list of images; add a line such as valid = valid.txt")
    names = read_names(_existing(entries["names"], bases, path, "names")) if entries.get("names") else None
    valid = _listed(_existing(entries["valid"], bases, path, "valid"), bases)
    training = next(
        (base / entries["train"] for base in bases if entries.get("train") and isfile(base / entries["train"])), None
    )
    return Listed(valid, names, _quietly(training, bases))


def _ultralytics(path: Path, bases: list[Path]) -> Listed:
    """Read the keys `path`, `val` (else `test`), `train` and `names`; the rest is for training."""
    root = read_yaml_file(path)
    if not isinstance(root, Mapping):
        raise FormatError(f"{named(path)}: holds no `key: value` pairs, so it is no data.yaml")
    items, at = root.items, root.items.get("path")
    roots = [folder for base in bases for folder in _roots(base, at.text if isinstance(at, Scalar) else "")]
    split = next((name for name in ("val", "test") if not _nothing(items.get(name))), None)
    if split is None:
        raise FormatError(f"{named(path)}: names no images for validation; add a line such as val: images/val")
    training = items.get("train")
    return Listed(
        tuple(image for path_text in _texts(items[split]) for image in _split(path_text, roots, path, split)),
        _names(items, path),
        frozenset()
        if _nothing(training)
        else frozenset(
            image
            for path_text in _texts(training)  # type: ignore[arg-type]
            for base in roots
            if exists(base / path_text)
            for image in _quietly(base / path_text, roots)
        ),
        _keypoints(items.get("kpt_shape")),
    )


def _keypoints(node: Node | None) -> tuple[int, int] | None:
    """Read `kpt_shape: [points, numbers a point]`; None for anything else."""
    texts = [] if _nothing(node) or node is None else _texts(node)
    if len(texts) == 2 and all(text.isascii() and text.isdigit() and len(text) < 6 for text in texts):
        return int(texts[0]), int(texts[1])
    return None


def _roots(base: Path, stated: str) -> Iterator[Path]:
    """List where a data.yaml's paths may count from: its `path`, which counts from its folder or from `datasets` beside."""
    if stated:
        yield base / stated
        yield base.absolute().parent / "datasets" / stated
    yield base


def _split(path_text: str, roots: list[Path], path: Path, key: str) -> tuple[Path, ...]:
    tried = [path_text, *([path_text.removeprefix("../")] if path_text.startswith("../") else [])]
    for root, name in itertools.product(roots, tried):
        if exists(root / name):
            return _images_at(root / name, roots)
    raise DataError(
        f"{named(path)}: {key} is {shown(path_text)}, which is nowhere ({named(roots[0] / path_text)} was looked for "
        "first); check `path`, or set data.images to the folder that paths count from"
    )


def _images_at(source: Path, bases: list[Path]) -> tuple[Path, ...]:
    """Return the images of a folder and of those below it, or of a list."""
    if not isdir(source):
        return _listed(source, bases)
    images = tuple(sorted(_below(source, DEEPEST)))
    if not images:
        raise DataError(f"{named(source)}: holds no images ({' '.join(SUFFIXES)})")
    return images


def _below(folder: Path, deep: int) -> Iterator[Path]:
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise DataError(f"{named(folder)}: cannot be read ({reason_of(error)})") from None
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _below(folder / entry.name, deep - 1) if deep else ()
        elif is_image_name(entry.name) and entry.is_file():
            yield folder / entry.name


def _quietly(source: Path | None, bases: list[Path]) -> frozenset[Path]:
    """Return the images of a training list, none where it cannot be read: nothing hangs on it but a remark."""
    try:
        return frozenset() if source is None else frozenset(_images_at(source, bases))
    except DataError:
        return frozenset()


def _names(items: dict[str, Node], path: Path) -> tuple[str, ...] | None:
    node = items.get("names")
    if node is None:
        return None
    if isinstance(node, YamlSequence):
        return _checked([item.text if isinstance(item, Scalar) else "" for item in node.items], path)
    if not isinstance(node, Mapping) or len(node.items) > MAX_CATEGORIES:
        raise FormatError(f"{named(path)}: names is neither a list nor `index: name` pairs")
    pairs = {key: value.text if isinstance(value, Scalar) else "" for key, value in node.items.items()}
    if set(pairs) != {str(index) for index in range(len(pairs))}:
        raise FormatError(f"{named(path)}: names has the indices {shown(', '.join(pairs))}; it needs 0 to {len(pairs) - 1}")
    return _checked([pairs[str(index)] for index in range(len(pairs))], path)


def _checked(names: list[str], path: Path) -> tuple[str, ...]:
    for name in names:
        if not name.strip() or not name.isprintable():
            raise FormatError(f"{named(path)}: {shown(name)} is no class name")
    return tuple(names)


def _nothing(node: Node | None) -> bool:
    return node is None or (isinstance(node, Scalar) and node.text.lower() in ("", "~", "null"))


def _texts(node: Node) -> list[str]:
    items = node.items if isinstance(node, YamlSequence) else [node]
    return [item.text for item in items if isinstance(item, Scalar)]


def _existing(stated: str, bases: list[Path], path: Path, key: str) -> Path:
    for base in bases:
        if isfile(base / stated):
            return base / stated
    raise DataError(
        f"{named(path)}: {key} is {shown(stated)}, which is nowhere ({named(bases[0] / stated)} was looked for "
        "first); set data.images to the folder that paths count from"
    )


def _listed(path: Path, bases: list[Path]) -> tuple[Path, ...]:
    """Return the images of a text file, one a line."""
    text_lines = read_text_bounded(path, MAX_LIST_BYTES, "list of images", "a list of images").split("\n")
    lines = [line.strip() for line in text_lines]
    base: Path | None = None
    line_of: dict[Path, int] = {}
    for number, text in enumerate(lines, 1):
        if not text:
            continue
        if not text.isprintable() or PurePath(text).suffix.lower() not in SUFFIXES:
            raise FormatError(f"{named(path)}:{number}: {shown(text)} is no path of an image ({' '.join(SUFFIXES)})")
        if base is None:
            base = next((folder for folder in bases if isfile(find_by_any_form(folder / text))), bases[0])
        image = find_by_any_form(base / text)
        if image in line_of:
            raise FormatError(
                f"{named(path)}:{number}: {shown(text)} is in line {line_of[image]} already; list each image once"
            )
        line_of[image] = number
    if not line_of:
        raise FormatError(f"{named(path)}: lists no images; write their paths, one a line")
    return tuple(line_of)


def _label_file(image: Path) -> Path:
    """Return where an image's labels are: in the folder `labels` in place of the last `images`, else beside it."""
    parts = list(image.parts)
    for image_folder, label_folder in (("images", "labels"), ("JPEGImages", "labels")):
        if image_folder in parts[:-1]:
            position = len(parts) - 2 - parts[:-1][::-1].index(image_folder)
            moved = find_by_any_form(Path(*parts[:position], label_folder, *parts[position + 1 :]).with_suffix(".txt"))
            if isfile(moved) or not isfile(image.with_suffix(".txt")):
                return moved
    return find_by_any_form(image.with_suffix(".txt"))
