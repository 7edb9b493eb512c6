# SPDX-License-Identifier: MIT
"""Between mpnet's batches (n, h, w, c) and engines that take one image (1, c, h, w) at a time."""

from __future__ import annotations

from typing import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def by_image(run: Callable[[Floats], Sequence[Floats]], batch: Floats) -> list[Floats]:
    """Run the images of a batch one by one; each output of all of them, (n, h, w, c)."""
    results = [run(np.ascontiguousarray(image.transpose(2, 0, 1)[None])) for image in batch]
    return [np.ascontiguousarray(np.concatenate(heads).transpose(0, 2, 3, 1)) for heads in zip(*results, strict=True)]


def first_line(error: Exception) -> str:
    """The first line of an engine's error that is not empty, for messages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
