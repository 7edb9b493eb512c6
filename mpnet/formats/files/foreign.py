# SPDX-License-Identifier: MIT
"""Files that are not what they are named for: what their first bytes or their suffix say, for messages."""

from __future__ import annotations

import shlex
from pathlib import Path

_IMPORTED = (".onnx", ".tflite")
_CHECKPOINTS = (".pt", ".pth", ".ckpt", ".safetensors", ".h5", ".hdf5", ".keras", ".pb", ".engine", ".mlmodel", ".caffemodel")
_BEGINNINGS = (
    (b"version https://git-lfs", "a Git LFS pointer in place of the file; get the file with `git lfs pull`"),
    (b"PK\x03\x04", "a ZIP archive, as PyTorch writes checkpoints; export such a model to ONNX, which `mpnet import` takes"),
    (b"\x89HDF", "an HDF5 file, as Keras writes models; convert such a model to TensorFlow Lite, which `mpnet import` takes"),
    (b"\x1f\x8b", "a gzip archive; unpack it"),
)
_PAGES = (b"<!doctype html", b"<html")


def foreign_content(content: bytes) -> str:
    """Return what a file's first bytes say it is, and what to do, where people take it for another; '' for others."""
    if content.lstrip()[:16].lower().startswith(_PAGES):
        return "a web page in place of the file; open it in a browser to see why, and download the file itself"
    return next((text for beginning, text in _BEGINNINGS if content.startswith(beginning)), "")


def foreign_model(path: Path | str) -> str:
    """Return what to do with a model of another program, by its suffix; '' for other files."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in _IMPORTED:
        command = shlex.join(["mpnet", "import", str(path), "-o", f"{path.stem}/"])
        command = command if command.isprintable() else "mpnet import"
        return f"is a model of another program; `{command}` makes a cfg, weights and an experiment file of it"
    if suffix in _CHECKPOINTS:
        return "is a model of another program; export it to ONNX there, then `mpnet import` makes an experiment of it"
    return ""
