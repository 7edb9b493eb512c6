# SPDX-License-Identifier: MIT
"""Paths as people would write them."""

from __future__ import annotations

import unicodedata
from pathlib import Path

COMPANION = "._"
"""How names begin under which macOS keeps what it knows of a file beside it; archives and sticks bring them along."""


def compose(name: str) -> str:
    """Return a name with its accents composed (NFC): macOS and some archives write an e and its accent as two characters."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def find_by_any_form(path: Path) -> Path:
    """Return a path under which a file is there, where one is: as it is written, or with accents composed or apart."""
    if str(path).isascii() or path.exists():
        return path
    forms = [unicodedata.normalize("NFC", str(path)), unicodedata.normalize("NFD", str(path))]
    names = [unicodedata.normalize("NFC", path.name), unicodedata.normalize("NFD", path.name)]
    return next((other for other in (*map(path.with_name, names), *map(Path, forms)) if other.exists()), path)


def without_detours(path: Path) -> Path:
    """Return `experiments/../runs` as `runs`; where a folder on the way is a link, which changes what `..` is, it stays."""
    walked = Path(*path.parts[:1]) if path.anchor else Path()
    for part in path.parts[1:] if path.anchor else path.parts:
        is_folder = walked.name not in ("", "..") and walked.is_dir() and not walked.is_symlink()
        walked = walked.parent if part == ".." and is_folder else walked / part
    return walked
