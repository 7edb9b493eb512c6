# SPDX-License-Identifier: MIT
"""The inputs of `mpnet detect`: images, folders of images and videos, told apart by their suffix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

from mpnet.errors import ConfigError, DataError
from mpnet.formats.files.paths import COMPANION
from mpnet.formats.images.frames import VIDEO_SUFFIXES
from mpnet.formats.images.read import SUFFIXES as IMAGE_SUFFIXES
from mpnet.messages import separator_hint


@dataclass(frozen=True)
class Source:
    """One file to look at, and the name of its copy with boxes."""

    path: Path
    is_video: bool
    out_name: str


def find_sources(paths: Sequence[Path]) -> list[Source]:
    """Return the files that `paths` name, folders replaced by their images and videos in order of their names.

    Two files of one name get different output names. Raises: DataError for what is missing or neither image nor
    video, ConfigError when a folder holds none.
    """
    sources: list[Source] = []
    taken: set[str] = set()
    for path in paths:
        for file in _files(path):
            is_video = file.suffix.lower() in VIDEO_SUFFIXES
            suffix = ".mp4" if is_video else file.suffix.lower() if file.suffix.lower() in (".jpg", ".png") else ".png"
            name, number = f"{file.stem}{suffix}", 2
            while name in taken:
                name, number = f"{file.stem}-{number}{suffix}", number + 1
            taken.add(name)
            sources.append(Source(file, is_video, name))
    return sources


def _files(path: Path) -> list[Path]:
    known = (*IMAGE_SUFFIXES, *VIDEO_SUFFIXES)
    try:
        folder, is_file = path.is_dir(), path.is_file()
        entries = (
            sorted(
                entry
                for entry in path.iterdir()
                if entry.suffix.lower() in known and not entry.name.startswith(COMPANION) and entry.is_file()
            )
            if folder
            else []
        )
    except ValueError as error:
        raise DataError(f"{str(path)!r}: {error}; check the path") from None
    if folder and not entries:
        raise ConfigError(f"{path}: holds no images or videos (known suffixes: {', '.join(known)})")
    if folder:
        return entries
    if not is_file:
        raise DataError(f"{path}: no such file or folder; check the path{separator_hint(path)}")
    if path.suffix.lower() not in known:
        raise DataError(f"{path}: is neither an image nor a video (known suffixes: {', '.join(known)})")
    return [path]
