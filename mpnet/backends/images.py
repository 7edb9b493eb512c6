# SPDX-License-Identifier: MIT
"""Helpers that several backends share: a batch (n, h, w, c) as single images (1, c, h, w), and descriptions of layers."""

from __future__ import annotations

from typing import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.export import Exported

Floats = NDArray[np.float32]


def by_image(run: Callable[[Floats], Sequence[Floats]], batch: Floats) -> list[Floats]:
    """Run the images of a batch one by one; each output of all of them, (n, h, w, c)."""
    results = [run(np.ascontiguousarray(image.transpose(2, 0, 1)[None])) for image in batch]
    return [np.ascontiguousarray(np.concatenate(heads).transpose(0, 2, 3, 1)) for heads in zip(*results, strict=True)]


def first_line(error: Exception) -> str:
    """Return the first line of an engine's error that is not empty, for messages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def explained(
    exported: Exported, layer: int, precision: str, where: str, reasons: Mapping[tuple[str, str], str]
) -> tuple[str, str]:
    """Return (precision, where it was read) of a layer that runs, with the reason where another one was asked for.

    reasons: by (the precision asked for, the one that runs).
    """
    asked = exported.layers[layer][0] if layer in exported.layers else precision
    return precision, f"{where}: {reasons[asked, precision]}" if (asked, precision) in reasons else where
