# SPDX-License-Identifier: MIT
"""A tree of classes, as Darknet's WordTree files describe it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Tree:
    """parents: of each node, an earlier node or -1. Siblings stand together: a new parent begins a new group."""

    parents: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.parents)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Return where each group of siblings begins, and the number of nodes at last."""
        changes = [i for i in range(1, len(self.parents)) if self.parents[i] != self.parents[i - 1]]
        return (0, *changes, len(self.parents))
