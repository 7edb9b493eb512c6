# SPDX-License-Identifier: MIT
"""Images of one class each -> Dataset: a folder per class, or a list of files."""

from __future__ import annotations

import re
from itertools import zip_longest
from pathlib import Path
from typing import Sequence

from mpnet.data.dataset import MAX_CATEGORIES, Category, Dataset
from mpnet.errors import DataError, FormatError
from mpnet.formats.files.bounded import read_text_bounded
from mpnet.formats.images.read import SUFFIXES, probe
from mpnet.formats.labels.class_match import find_class
from mpnet.formats.labels.yolo import list_files
from mpnet.messages import few, named, reason_of, shown

MAX_LIST_BYTES = 256 * 1024 * 1024
_BLANKS = re.compile(r"\s+")


def read_imagefolder(images: Path | str, names: Sequence[str], *, limit: int | None = None, is_turned: bool = False) -> Dataset:
    """Read the images of the folders in a folder; a folder's name is the class of what lies in it.

    names: of the classes in index order; each folder must be one of them, in whatever spelling (`find_class`).
    The first image of every class comes first, then the second of every class and so on, each by file name, so that
    any `limit` takes a like share of each; ids are 1, 2, ... is_turned: whether EXIF turns the images.
    Raises: DataError for folders or files that cannot be read, or folders that are no classes.
    """
    root = Path(images)
    _index_of(names)
    by_class: dict[int, list[Path]] = {}
    respelt: list[str] = []
    for folder in _folders(root):
        index = find_class(folder.name, names)
        if index is None:
            raise DataError(
                f"{named(folder)}: {shown(folder.name)} is not among the {len(names)} names of the classes "
                f"({shown(names[0])}, ...); check data.images and model.names"
            )
        if names[index] != folder.name:
            respelt.append(f"{folder.name} as {names[index]}")
        if index in by_class:
            raise DataError(f"{named(folder)}: another folder is class {shown(names[index])} as well; put both into one")
        by_class[index] = list_files(folder, SUFFIXES, "images", "data.images")
    turns = zip_longest(*([(file, label) for file in files] for label, files in sorted(by_class.items())))
    chosen = [entry for turn in turns for entry in turn if entry is not None][:limit]
    if not chosen:
        raise DataError(f"{named(root)}: its folders hold no images ({' '.join(SUFFIXES)}); check data.images")
    empty = [title for position, title in enumerate(names) if not by_class.get(position)]
    notes = [f"{len(empty)} of {len(names)} classes have no image, for example {shown(empty[0])}"] if empty else []
    if respelt:
        notes.append(f"classes that the data set spells otherwise than the network: {few(respelt)}")
    return _dataset(chosen, names, notes, is_turned)


def read_list(
    listed: Path | str, images: Path | str, names: Sequence[str], *, limit: int | None = None, is_turned: bool = False
) -> Dataset:
    """Read the images that a text file lists, one a line, in its order; ids are 1, 2, ...

    A line is a path and a class, its name or its index from 0, with a blank between; or, as in Darknet's own lists, a path
    alone in which the name of one class occurs (and others at most within it).
    images: the folder that relative paths count from. is_turned: whether EXIF turns the images.
    Raises: DataError for files that cannot be read, FormatError with the line for one without a class, with several, or
    listed before.
    """
    index = _index_of(names)
    entries: list[tuple[Path, int]] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(_lines(listed), 1):
        text = line.strip()
        if not text:
            continue
        location = f"{named(listed)}:{number}"
        path, label = _entry(text, index, location)
        if not path.isprintable():
            raise FormatError(f"{location}: {shown(path)} is no path of an image")
        if path in seen:
            raise FormatError(f"{location}: {shown(path)} is in line {seen[path]} already; list each image once")
        seen[path] = number
        entries.append((Path(images) / path, label))
        if len(entries) == limit:
            break
    if not entries:
        raise FormatError(f"{named(listed)}: lists no images; write `path class`, one a line")
    return _dataset(entries, names, (), is_turned)


def _entry(text: str, index: dict[str, int], location: str) -> tuple[str, int]:
    """Return the path and class index of one line."""
    for blank in _BLANKS.finditer(text):  # names may hold blanks, so the longest that is one counts
        if (word := text[blank.end() :]) in index:
            return text[: blank.start()], index[word]
    head, *tail = text.rsplit(None, 1)
    if tail and tail[0].isascii() and tail[0].isdigit():
        if len(tail[0]) > 9 or int(tail[0]) >= len(index):
            raise FormatError(
                f"{location}: class {shown(tail[0])} is not an index from 0 to {len(index) - 1}; check list and names"
            )
        return head, int(tail[0])
    names_in_text = sorted((name for name in index if name in text), key=len, reverse=True)
    # `arrow` within `double-arrow` is no second class; Darknet takes whichever its names list first.
    if names_in_text and not any(name in text.replace(names_in_text[0], "\n") for name in names_in_text[1:]):
        return text, index[names_in_text[0]]
    if names_in_text:
        raise FormatError(
            f"{location}: {shown(text)} holds the names of several classes ({', '.join(map(shown, names_in_text[:3]))}); "
            "write `path class`"
        )
    raise FormatError(f"{location}: {shown(text)} names no class; write `path class`, a name of model.names or its index")


def _folders(root: Path) -> list[Path]:
    try:
        folders = sorted(
            (entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith(".")),
            key=lambda entry: entry.name,
        )
    except (OSError, ValueError) as error:
        raise DataError(
            f"{named(root)}: the folder of classes cannot be read ({reason_of(error)}); check data.images"
        ) from None
    if not 1 <= len(folders) <= MAX_CATEGORIES:
        raise DataError(
            f"{named(root)}: holds {len(folders)} folders; format imagefolder needs one for each class, 1 to {MAX_CATEGORIES}"
        )
    return folders


def _index_of(names: Sequence[str]) -> dict[str, int]:
    index = {title: position for position, title in enumerate(names)}
    if len(index) != len(names):
        twice = next(name for position, name in enumerate(names) if name in names[:position])
        raise DataError(f"two classes are called {shown(twice)}; labels by name need names that differ")
    return index


def _dataset(entries: Sequence[tuple[Path, int]], names: Sequence[str], notes: Sequence[str], is_turned: bool) -> Dataset:
    records = [probe(path, number, is_turned) for number, (path, _) in enumerate(entries, 1)]
    categories = [Category(position + 1, name) for position, name in enumerate(names)]
    return Dataset.labelled(records, categories, [label for _, label in entries], notes)


def _lines(path: Path | str) -> list[str]:
    return read_text_bounded(path, MAX_LIST_BYTES, "list of images", "a list of images").split("\n")
