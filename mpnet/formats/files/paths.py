# SPDX-License-Identifier: MIT
"""Paths as people would write them."""

from __future__ import annotations

from pathlib import Path


def without_detours(path: Path) -> Path:
    """Return `experiments/../runs` as `runs`; where a folder on the way is a link, which changes what `..` is, it stays."""
    walked = Path(*path.parts[:1]) if path.anchor else Path()
    for part in path.parts[1:] if path.anchor else path.parts:
        is_folder = walked.name not in ("", "..") and walked.is_dir() and not walked.is_symlink()
        walked = walked.parent if part == ".." and is_folder else walked / part
    return walked
