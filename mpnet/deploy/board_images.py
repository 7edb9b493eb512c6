# SPDX-License-Identifier: MIT
"""A run's images as mprun reads them: JPEGs as they are where its decoder takes them, all others as PPM of their pixels."""

from __future__ import annotations

import hashlib
import io
import tarfile
from functools import partial
from pathlib import Path
from typing import Sequence

from mpnet.data.dataset import ImageRecord
from mpnet.deploy.board import BoardFile
from mpnet.detection.conditions import Condition
from mpnet.detection.images import image
from mpnet.detection.jpeg import decode_jpeg
from mpnet.errors import ConfigError, DataError
from mpnet.formats.images.read import read_bytes
from mpnet.trial.inputs import Inputs

LIST = "list"
PART_BYTES = 48 << 20
"""So much of pixels goes into one archive at most: what is sent again when a connection breaks."""
MAX_ID = 10**17
"""Ids of images below this are written by mprun as they are."""


def board_images(inputs: Inputs) -> list[BoardFile]:
    """Return the files that a board needs to evaluate the images of a run: archives, and the list that names them.

    Raises: ConfigError for an id that mprun does not write; reading an archive raises DataError as `image` does.
    """
    records = inputs.records
    for record in records:
        if not 0 <= record.id < MAX_ID:
            raise ConfigError(f"{record.path}: image id {record.id}: with --on ids are from 0 to {MAX_ID - 1}")
    parts: list[list[ImageRecord]] = [[]]
    size_bytes = 0
    for record in records:
        record_bytes = 3 * record.width * record.height
        if parts[-1] and size_bytes + record_bytes > PART_BYTES:
            parts.append([])
            size_bytes = 0
        parts[-1].append(record)
        size_bytes += record_bytes
    lines = "".join(f"{record.id} {_name_of(record)}\n" for record in records)
    archives = [
        BoardFile(f"images-{number}.tar", _digest(part, inputs.condition), partial(_archive, part, inputs.condition))
        for number, part in enumerate(parts)
    ]
    return [BoardFile.of(LIST, lines.encode()), *archives]


def _name_of(record: ImageRecord) -> str:
    # mprun tells the kind of an image by its content.
    return f"images/{record.id}"


def _digest(records: Sequence[ImageRecord], condition: Condition | None) -> str:
    return hashlib.sha256(repr(([(record.id, record.content) for record in records], str(condition))).encode()).hexdigest()


def _archive(records: Sequence[ImageRecord], condition: Condition | None) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for record in records:
            data = _image_file(record, condition)
            member = tarfile.TarInfo(_name_of(record))
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


def _image_file(record: ImageRecord, condition: Condition | None) -> bytes:
    """Return the bytes of a file that mprun decodes to the pixels that a run here has."""
    if condition is None and record.orientation == 1 and Path(record.path).is_file():  # no frame of a video
        data = read_bytes(record.path)
        if hashlib.sha256(data).hexdigest() != record.sha256:
            raise DataError(f"{record.path!r}: changed since it was listed; start again")
        if decode_jpeg(data, record.width, record.height) is not None:
            return data
    pixels = image(record)
    if condition is not None:
        pixels = condition.apply(pixels, record.sha256)
    return f"P6\n{record.width} {record.height}\n255\n".encode() + pixels.tobytes()
