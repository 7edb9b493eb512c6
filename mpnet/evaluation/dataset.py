"""Loads the data section of an experiment: the labelled pictures, and the pictures themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.detection.jpeg import decode_jpeg
from mpnet.errors import ConfigError, DataError
from mpnet.formats.coco_json import read_coco
from mpnet.formats.images import decode_walked, read_bytes, walked
from mpnet.formats.labels_yolo import read_yolo
from mpnet.spec.dataset import Dataset, ImageRecord
from mpnet.spec.experiment import DATA_FORMATS


def load_dataset(
    format: str, images: Path | str, *, labels: Path | str | None = None, annotations: Path | str | None = None,
    names: Sequence[str] | None = None, limit: int | None = None,
) -> Dataset:
    """The data set of `data: {format, images, labels | annotations, limit}`.

    names: the network's class names in index order (required for format yolo).
    Raises: ConfigError for settings that do not go together, DataError and FormatError as the readers.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"data.limit: {limit} pictures; it must be at least 1")
    if format == "yolo":
        if labels is None or names is None:
            raise ConfigError("data.format yolo needs data.labels (a folder) and model.names")
        return read_yolo(images, labels, names, limit=limit)
    if format == "coco":
        if annotations is None:
            raise ConfigError("data.format coco needs data.annotations (an instances JSON file)")
        return read_coco(annotations, images, names=names, limit=limit)
    raise ConfigError(f"data.format: unknown format {format!r}; known are {', '.join(DATA_FORMATS)}")


def read_picture(path: Path | str) -> NDArray[np.uint8]:
    """The picture in a file, uint8 (height, width, 3), RGB; EXIF rotation is ignored, as Darknet does.

    JPEGs are decoded by mpnet itself, to the same pixels everywhere; all else, and what its decoder declines, by OpenCV.
    Raises: DataError with the path.
    """
    data, width, height = walked(read_bytes(path), path)
    pixels = decode_jpeg(data, width, height)
    return decode_walked(data, width, height, path) if pixels is None else pixels


def picture(record: ImageRecord) -> NDArray[np.uint8]:
    """One picture, uint8 (height, width, 3), RGB. Raises: DataError when it is broken or has changed its size."""
    pixels = read_picture(record.path)
    if pixels.shape[:2] != (record.height, record.width):
        raise DataError(f"{record.path!r}: changed since it was listed; start again")
    return pixels
