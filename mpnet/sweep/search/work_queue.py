# SPDX-License-Identifier: MIT
"""The units of work of one batch, on their way to the workers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Collection

from mpnet.sweep.evaluate.work_chunks import WorkChunk
from mpnet.sweep.problem.space import Assignment


@dataclass
class Claim:
    """A unit of work to be claimed, or claimed already.

    keys:       of it that are needed and not handed out yet, rising. handed_out: those that were.
    chunk_count: chunks of it that workers have.
    """

    name: str
    options: int
    keys: tuple[str, ...]
    chunk_count: int = 0
    handed_out: tuple[str, ...] = ()

    @property
    def configurations(self) -> list[Assignment]:
        """Return the configurations of the keys."""
        return [Assignment(key, self.options) for key in self.keys]

    def drop(self, keys: Collection[str]) -> None:
        """Leave out keys that need no worker."""
        self.keys = tuple(key for key in self.keys if key not in keys)


@dataclass
class WorkQueue:
    """The units of one batch, on their way to workers.

    pending:   not claimed yet. elsewhere: claimed by other processes.
    claimed:   by this one, with keys that are not handed out; one for each slot of the executor.
    running:   chunks that workers have, each with its claim and the claim's keys that were handed out before it.
    """

    pending: deque[Claim]
    elsewhere: deque[Claim] = field(default_factory=deque)
    claimed: list[Claim] = field(default_factory=list)
    running: dict[WorkChunk, tuple[Claim, tuple[str, ...]]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is left to do or to wait for."""
        return not (self.pending or self.claimed or self.running or self.elsewhere)

    @property
    def claim_names(self) -> set[str]:
        """Return the names of what this process has claimed."""
        return {claim.name for claim in (*(claim for claim, _ in self.running.values()), *self.claimed)}

    def drop_finished(self) -> None:
        """Forget claims whose keys are all handed out, or have failed."""
        self.claimed = [claim for claim in self.claimed if claim.keys]


def claim_missing(unit: WorkChunk, missing: Collection[Assignment]) -> Claim:
    """Return a claim of the keys of a unit that are missing."""
    keys = tuple(key for key in unit.keys if Assignment(key, unit.options) in missing)
    return Claim(unit.name, unit.options, keys)
