"""What `mpnet detect` asks of a network: objects or classes, at one configuration or at two side by side."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Callable

import numpy as np
from numpy.typing import NDArray

from mpnet.trial.network import Box, Label

Found = list[Box] | list[Label]
Find = Callable[[NDArray[np.uint8]], Found]


@dataclass(frozen=True)
class View:
    """What one configuration finds in an image. caption: which configuration."""

    caption: str
    found: Found


@dataclass
class Look:
    """key: of what is found, in JSON. sides: (caption, find in an image); the first is what was asked for, a second
    one stands beside it. seconds: spent in the first one's network and boxes alone, over `images`."""

    key: str
    sides: tuple[tuple[str, Find], ...]
    seconds: float = 0.0
    images: int = field(default=0)

    def at(self, image: NDArray[np.uint8]) -> list[View]:
        """What each side finds."""
        begin = time.perf_counter()
        views = [View(self.sides[0][0], self.sides[0][1](image))]
        self.seconds += time.perf_counter() - begin
        self.images += 1
        return views + [View(caption, find(image)) for caption, find in self.sides[1:]]

    def plain(self, views: list[View]) -> dict[str, Any]:
        """As documents hold it."""
        own, *others = ({"precision": view.caption, self.key: [one.plain() for one in view.found]} for view in views)
        return {self.key: own[self.key], **({"beside": others[0]} if others else {})}
