# SPDX-License-Identifier: MIT
"""The predictions of `mpnet detect`: objects or classes, at one configuration or at two side by side."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Callable

import numpy as np
from numpy.typing import NDArray

from mpnet.api.network import Box, Label

Predictions = list[Box] | list[Label]
Predict = Callable[[NDArray[np.uint8]], Predictions]


@dataclass(frozen=True)
class View:
    """The predictions of one configuration for an image. caption: which configuration."""

    caption: str
    predictions: Predictions


@dataclass
class SideBySide:
    """One configuration, or two of which the second stands beside the first.

    key: of the predictions in JSON. sides: (caption, predict) of each configuration.
    seconds: spent in the first one's network and boxes alone, over `images`.
    """

    key: str
    sides: tuple[tuple[str, Predict], ...]
    seconds: float = 0.0
    images: int = field(default=0)

    def views(self, image: NDArray[np.uint8]) -> list[View]:
        """Return what each configuration predicts of an image, RGB uint8 (h, w, 3)."""
        begin = time.perf_counter()
        views = [View(self.sides[0][0], self.sides[0][1](image))]
        self.seconds += time.perf_counter() - begin
        self.images += 1
        return views + [View(caption, predict(image)) for caption, predict in self.sides[1:]]

    def plain(self, views: list[View]) -> dict[str, Any]:
        """Return the predictions of an image as `detect --json` prints them; the second configuration's under `beside`."""
        first, *others = ({"precision": view.caption, self.key: [one.plain() for one in view.predictions]} for view in views)
        return {self.key: first[self.key], **({"beside": others[0]} if others else {})}
