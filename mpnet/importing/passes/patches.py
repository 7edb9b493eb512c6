# SPDX-License-Identifier: MIT
"""Rows of an image's pixels by their place in a patch, as MobileViT puts them, found by moving index numbers.

The pixels at one place of all patches are one group: attention is between them, and all else is computed pixel by pixel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.importing.graph import Array, Node, NodeGraph, Refused
from mpnet.importing.operators import Budget, OperatorCall, evaluate
from mpnet.importing.operators.record import Shape

_MOVING = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten")
_READERS = ("LayerNormalization", "MatMul")
_LONGEST, _MAX_VALUES, _MAX_WORK, _MAX_PLACES = 12, 1 << 24, 1 << 28, 256
Indices = NDArray[np.signedinteger[Any]]
"""Numbers of values of a tensor, or where they stand."""


@dataclass(frozen=True)
class Patches:
    """An image cut into patches: (height, width) of the image, and of a patch, in pixels."""

    height: int
    width: int
    patch_height: int
    patch_width: int

    @property
    def places(self) -> int:
        """Count the pixels of a patch."""
        return self.patch_height * self.patch_width

    @property
    def count(self) -> int:
        """Count the patches."""
        return self.height * self.width // self.places

    @property
    def grid(self) -> tuple[int, int, int, int]:
        """Return (rows of patches, rows of a patch, columns of patches, columns of a patch)."""
        return self.height // self.patch_height, self.patch_height, self.width // self.patch_width, self.patch_width

    def group(self, x: Indices) -> Indices:
        """Turn (..., c, height, width) into (..., places, c, patches)."""
        *others, channels, _, _ = x.shape
        axis = len(others)
        grouped = x.reshape(*others, channels, *self.grid)
        order = [*range(axis), axis + 2, axis + 4, axis, axis + 1, axis + 3]
        return np.reshape(grouped.transpose(order), (*others, self.places, channels, self.count))

    def find_grouped(self, positions: Indices, channels: int) -> Indices:
        """Return where values of (channels, height, width) stand in (places, channels, patches)."""
        pixel = positions % (self.height * self.width)
        y, x, channel = pixel // self.width, pixel % self.width, positions // (self.height * self.width)
        place = y % self.patch_height * self.patch_width + x % self.patch_width
        patch = y // self.patch_height * (self.width // self.patch_width) + x // self.patch_width
        return np.asarray((place * channels + channel) * self.count + patch)


def list_patches(height: int, width: int, places: int) -> list[Patches]:
    """Return how an image can be cut into patches of so many pixels."""
    sides = [(rows, places // rows) for rows in range(1, min(places, _MAX_PLACES) + 1) if places % rows == 0]
    return [Patches(height, width, rows, columns) for rows, columns in sides if height % rows == 0 and width % columns == 0]


class PatchFinder:
    """The rows of a graph that are pixels by their place in a patch.

    patches: by the first two sides of such rows, (places, patches). sources: by tensor of rows: the (1, c, h, w) that it holds.
    """

    def __init__(self, graph: NodeGraph) -> None:
        self.graph, self.makers, self.budget = graph, graph.makers(), Budget(_MAX_WORK, 1 << 62)
        self.patches: dict[Shape, Patches] = {}
        self.sources: dict[str, str] = {}
        for node in graph.nodes:
            if node.operator in _READERS and node.inputs and len(graph.shapes.get(node.inputs[0], ())) == 3:
                self._find_source(node.inputs[0])

    def find_image(self, node: Node, rows: Mapping[str, str]) -> str | None:
        """Return the (1, c, h, w) that the result of a node holds in its own order; None where that is not known.

        rows: by tensor of rows: the (1, c, h, w) that it holds.
        """
        chain, name = [node], node.inputs[0]
        while name not in rows or self.graph.shapes[name][:-1] not in self.patches:
            maker = self.makers.get(name)
            if maker is None or maker.operator not in _MOVING or len(chain) == _LONGEST:
                return None
            chain, name = [maker, *chain], maker.inputs[0]
        patches, shape = self.patches[self.graph.shapes[name][:-1]], self.graph.shapes[rows[name]]
        image = self._number(shape)
        moved = None if image is None else self._move(chain, _to_rows(patches, image))
        return rows[name] if moved is not None and image is not None and np.array_equal(moved, image) else None

    def _find_source(self, rows: str) -> None:
        shape, chain, name = self.graph.shapes[rows], list[Node](), rows
        if rows in self.sources or shape[0] < 2:
            return
        while not (chain and len(self.graph.shapes.get(name, ())) == 4 and self._is_image(name)):
            maker = self.makers.get(name)
            if maker is None or maker.operator not in _MOVING or len(chain) == _LONGEST:
                return
            chain, name = [maker, *chain], maker.inputs[0]
        _, channels, height, width = self.graph.shapes[name]
        image = self._number((1, channels, height, width))
        moved = self._move(chain, image) if image is not None and channels == shape[2] else None
        if moved is None or moved.shape != shape or image is None:
            return
        for patches in list_patches(height, width, shape[0]):
            if np.array_equal(moved, _to_rows(patches, image)) and self.patches.setdefault(shape[:2], patches) == patches:
                self.sources[rows] = name

    def _is_image(self, name: str) -> bool:
        """Return whether a tensor is one image that no node before it only moves."""
        maker = self.makers.get(name)
        return self.graph.shapes[name][0] == 1 and (maker is None or maker.operator not in _MOVING)

    def _number(self, shape: Shape) -> Indices | None:
        """Return the numbers of the values of a tensor; None for one that is too large."""
        values = math.prod(shape)
        self.budget.values -= values
        if values > _MAX_VALUES or self.budget.values < 0:
            return None
        return np.arange(values, dtype=np.int32).reshape(shape)

    def _move(self, chain: list[Node], x: Array) -> Array | None:
        for node in chain:
            constants = [self.graph.constants.get(name) if name else None for name in node.inputs[1:]]
            try:
                [x] = evaluate(OperatorCall(node, [x, *constants]), self.budget)
            except Refused:
                return None
        return x


def _to_rows(patches: Patches, image: Indices) -> Indices:
    """Turn (1, c, height, width) into rows: (places, patches, c)."""
    return np.swapaxes(patches.group(image[0]), 1, 2)
