# SPDX-License-Identifier: MIT
"""The files of the packaged demo network, checked for damage.

files = model_files()
files.cfg, files.weights, files.names
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from mpnet.errors import DataError

DATA = Path(__file__).resolve().parent / "data"
_SUMS = "SHA256SUMS"
_REMEDY = "reinstall mpnet, or restore the file from its repository"


@dataclass(frozen=True)
class ModelFiles:
    """Paths of a verified demo network: configuration, weights and class names."""

    cfg: Path
    weights: Path
    names: Path


def model_files(directory: Path = DATA) -> ModelFiles:
    """Return the paths of the demo network's files.

    directory: the folder that holds demo.cfg, demo.weights, demo.names and SHA256SUMS.
    Raises: DataError naming the first file that is missing, unreadable or not what SHA256SUMS says.
    """
    names = ("demo.cfg", "demo.weights", "demo.names")
    for name in names:
        _verified(directory, name)
    return ModelFiles(*(directory / name for name in names))


def experiment_text(directory: Path = DATA) -> str:
    """Return the demo's experiment file, the copy of experiments/demo.yaml that is installed with the package.

    Raises: DataError when it is missing or not what SHA256SUMS says.
    """
    return _verified(directory, "demo.yaml").decode("utf-8")


def _verified(directory: Path, name: str) -> bytes:
    """Return the content of a packaged file whose digest is the recorded one."""
    expected = _read_sums(directory / _SUMS)
    path = directory / name
    if name not in expected:
        raise DataError(f"{directory / _SUMS}: no digest of {name}; {_REMEDY}")
    content = _read(path)
    digest = hashlib.sha256(content).hexdigest()
    if digest != expected[name]:
        raise DataError(f"{path}: damaged, SHA-256 is {digest[:12]}... instead of {expected[name][:12]}...; {_REMEDY}")
    return content


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); {_REMEDY}") from error


def _read_sums(path: Path) -> dict[str, str]:
    """Return the digest by file name from lines of `sha256sum`: 64 hex digits, two blanks, name."""
    sums = {}
    for number, line in enumerate(_read(path).decode("ascii", "replace").splitlines(), 1):
        digest, _, name = line.partition("  ")
        if len(digest) != 64 or set(digest) - set("0123456789abcdef") or not name:
            raise DataError(f"{path}:{number}: not a line of SHA-256 digest and file name; {_REMEDY}")
        sums[name] = digest
    return sums
