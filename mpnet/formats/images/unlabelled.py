# SPDX-License-Identifier: MIT
"""Images without labels: those of a folder, of a text file with one path a line, or the frames of a video."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Collection

from mpnet.errors import DataError
from mpnet.formats.files.paths import find_by_any_form
from mpnet.formats.images.frames import VIDEO_SUFFIXES, probe_video
from mpnet.formats.images.read import SUFFIXES, is_image_name, probe_all
from mpnet.messages import named, reason_of

if TYPE_CHECKING:
    from mpnet.data.dataset import ImageRecord

LIST_SUFFIXES = (".txt", ".list")
MAX_LIST_BYTES = 64 << 20


def read_unlabelled(
    path: Path | str, is_turned: bool = False, limit: int | None = None, present: Collection[str] = ()
) -> list[ImageRecord]:
    """Read the images that `data.unlabelled` names: of a folder by name, of a list or a video in their order.

    Paths in a list count from its folder. is_turned: whether EXIF turns them. limit: no more are read once there are so many
    different ones beside those with the digests `present`; of a video all are.
    Raises: DataError when there is no image, or one that cannot be used.
    """
    source = Path(path)
    if source.suffix.lower() in VIDEO_SUFFIXES:
        return probe_video(source)
    files = _listed(source) if source.suffix.lower() in LIST_SUFFIXES else _folder(source)
    if not files:
        raise DataError(f"{named(source)}: holds no images ({' '.join(SUFFIXES)}); check data.unlabelled")
    records: list[ImageRecord] = []
    step = len(files) if limit is None else limit
    for start in range(0, len(files), step):
        records += probe_all(files[start : start + step], is_turned)
        if limit is not None and len({record.sha256 for record in records}.difference(present)) >= limit:
            break
    return records


def _folder(folder: Path) -> list[Path]:
    try:
        return sorted((file for file in folder.iterdir() if is_image_name(file.name) and file.is_file()), key=str)
    except (OSError, ValueError) as error:
        known = ", ".join((*LIST_SUFFIXES, *VIDEO_SUFFIXES))
        raise DataError(
            f"{named(folder)}: is no folder of images ({reason_of(error)}) and no list or video ({known}); "
            "check data.unlabelled"
        ) from None


def _listed(file: Path) -> list[Path]:
    from mpnet.formats.files.bounded import decode_text, read_bounded

    try:
        lines = decode_text(read_bounded(file, MAX_LIST_BYTES, "list of images", DataError)).splitlines()
    except UnicodeDecodeError:
        raise DataError(f"{named(file)}: is not UTF-8 text; data.unlabelled takes a list of paths, one a line") from None
    return [find_by_any_form(file.parent / line.strip()) for line in lines if line.strip()]
