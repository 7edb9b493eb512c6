# SPDX-License-Identifier: MIT
"""Loads the data section of an experiment: the labelled images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Sequence

import numpy as np

from mpnet.config.experiment import DATA_FORMATS, LISTED, DataSection
from mpnet.data.dataset import Category, Dataset
from mpnet.errors import ConfigError
from mpnet.formats.images.orientation import describe_orientations, is_turned
from mpnet.formats.images.unlabelled import read_unlabelled
from mpnet.formats.labels.classes import read_imagefolder, read_list
from mpnet.formats.labels.coco import category_names, read_coco
from mpnet.formats.labels.listed import describe_listed, read_listed
from mpnet.formats.labels.yolo import read_yolo
from mpnet.messages import shown

MAX_COUNTED = 100
"""Detections of each image and class that COCO's measures count."""


def load_dataset(
    format: str,
    images: Path | str | None,
    *,
    labels: Path | str | None = None,
    annotations: Path | str | None = None,
    names: Sequence[str] | None = None,
    limit: int | None = None,
    unlabelled: Path | str | None = None,
    unlabelled_limit: int | None = None,
    orientation: str | None = None,
) -> Dataset:
    """Load the data set of `data: {format, images, labels | annotations, limit, unlabelled, unlabelled_limit, orientation}`.

    format: '' for no labelled images at all. names: the network's class names in index order (required for all formats but
    coco, and those whose file names them).
    orientation: stored, exif (EXIF turns images), None: as the format's own program does.
    Raises: ConfigError for settings that do not go together, DataError and FormatError as the readers.
    """
    are_turned = is_turned(orientation, format)
    if format:
        dataset = _load_labelled(format, images, labels, annotations, names, limit, are_turned)
    else:
        dataset = Dataset.of((), [Category(index + 1, name) for index, name in enumerate(names or ())], ())
    if unlabelled is not None:
        count = limit if unlabelled_limit is None else unlabelled_limit
        present = {image.sha256 for image in dataset.images}
        dataset = dataset.with_unlabelled(read_unlabelled(unlabelled, are_turned, count, present), count)
    notes = [note for note in (describe_orientations(dataset.images, are_turned), _describe_many(dataset)) if note]
    return replace(dataset, notes=(*dataset.notes, *notes)) if notes else dataset


def _describe_many(dataset: Dataset) -> str:
    """Return a line on images with more objects of a class than COCO's measures count detections; '' where there are none."""
    objects = np.stack([dataset.image_index, dataset.category], 1)[~dataset.crowd]
    pairs, counts = np.unique(objects, axis=0, return_counts=True)
    images = np.unique(pairs[counts > MAX_COUNTED, 0])
    if not images.size:
        return ""
    return (
        f"{images.size} of {len(dataset.images)} images have more than {MAX_COUNTED} objects of a class, of which COCO's AP "
        f"and AR count the best {MAX_COUNTED} detections: they cannot reach 100, for example in "
        f"{shown(Path(dataset.images[int(images[0])].path).name)}"
    )


def _load_labelled(
    format: str,
    images: Path | str | None,
    labels: Path | str | None,
    annotations: Path | str | None,
    names: Sequence[str] | None,
    limit: int | None,
    are_turned: bool,
) -> Dataset:
    """Load the labelled images; parameters, Raises: as `load_dataset`."""
    if limit is not None and limit < 1:
        raise ConfigError(f"data.limit: {limit} images; it must be at least 1")
    if format in LISTED:
        if labels is None:
            raise ConfigError(f"data.format {format} needs data.labels (a .data, a list of images, or a data.yaml)")
        return read_listed(labels, images or None, names, limit=limit, is_turned=are_turned)
    if images is None:
        raise ConfigError(f"data.format {format} needs data.images")
    if format == "yolo":
        if labels is None or names is None:
            raise ConfigError("data.format yolo needs data.labels (a folder) and model.names")
        return read_yolo(images, labels, names, limit=limit, is_turned=are_turned)
    if format == "coco":
        if annotations is None:
            raise ConfigError("data.format coco needs data.annotations (an instances JSON file)")
        return read_coco(annotations, images, names=names, limit=limit, is_turned=are_turned)
    if names is None and format in ("imagefolder", "list"):
        raise ConfigError(f"data.format {format} needs model.names")
    if format == "imagefolder" and names is not None:
        return read_imagefolder(images, names, limit=limit, is_turned=are_turned)
    if format == "list" and names is not None:
        if labels is None:
            raise ConfigError("data.format list needs data.labels (a text file of lines `path class`)")
        return read_list(labels, images, names, limit=limit, is_turned=are_turned)
    raise ConfigError(f"data.format: unknown format {format!r}; known are {', '.join(DATA_FORMATS)}")


def dataset_of(section: DataSection, names: Sequence[str] | None) -> Dataset:
    """Load the data set of an experiment's data section. names, Raises: as `load_dataset`."""
    return load_dataset(
        section.format,
        section.images,
        labels=section.labels,
        annotations=section.annotations,
        names=names,
        limit=section.limit,
        unlabelled=section.unlabelled,
        unlabelled_limit=section.unlabelled_limit,
        orientation=section.orientation,
    )


def names_in(data: DataSection | None) -> tuple[str, ...] | None:
    """Return the names of the classes that a data set's own file gives, None where it gives none.

    Raises: DataError, FormatError.
    """
    if data is not None and data.format == "coco" and data.annotations is not None and data.annotations.exists():
        return category_names(data.annotations)
    if data is None or data.format not in LISTED or data.labels is None:
        return None
    return describe_listed(data.labels, data.images).names
