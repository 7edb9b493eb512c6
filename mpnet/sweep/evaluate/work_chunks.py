# SPDX-License-Identifier: MIT
"""Units of work: configurations that are neighbours in the trie, claimed by one process, computed and committed in chunks.

Neighbours in the trie share most of their work, so a unit is a run of sorted keys with a common prefix. The layers of
the prefix are computed again for every unit, so units are as large as memory and the number of workers allow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from typing import Iterable, Sequence

from mpnet.model.network import NetworkSpec
from mpnet.sweep.evaluate.sharing import ancestors, forward_equivalents_of, restricted
from mpnet.sweep.problem.front import Rivals
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.store import FailedTrial, Trial

MAX_TRIALS = 4096
"""Trials of one unit."""
CANDIDATE_BYTES = 256 << 20
"""Memory that the decoded boxes of one unit may take in one worker."""
MAX_REPEATED = Fraction(1, 100)
"""Share of the work that may be done twice so that units become smaller and spread better."""
MAX_UNCUT = 64
"""Configurations that are not worth cutting further."""


@dataclass(frozen=True)
class WorkChunk:
    """Configurations under one option set, neighbours in the trie.

    It is a unit, which is claimed, or a chunk of one, which is computed and committed as a whole.

    rivals: the front so far, see `race`; configurations that it dominates need no figures. None: all need them.
    is_screening: only the noise at the heads on the context's few images is wanted.
    """

    options: int
    keys: tuple[str, ...]
    rivals: Rivals | None = None
    is_screening: bool = False

    @property
    def name(self) -> str:
        """Return the name that it is claimed under."""
        return f"{self.options}/{self.keys[0]}..{self.keys[-1]}/{len(self.keys)}"


@dataclass(frozen=True)
class ChunkResult:
    """A finished chunk. macs: executed for it, all images. ruled_out: keys of those that rivals beat, rising.

    image_counts: (images, configurations that were ruled out after so many), fewest images first.
    seconds: that computing it took, 0 where nobody measured that. failed_trials: configurations without figures, by rising key.
    cached_macs: multiply-accumulates that were not executed, since the previous chunk had left the tensors.
    """

    chunk: WorkChunk
    trials: tuple[Trial, ...]
    macs: int
    ruled_out: tuple[str, ...] = ()
    image_counts: tuple[tuple[int, int], ...] = ()
    seconds: float = field(default=0.0, compare=False)
    failed_trials: tuple[FailedTrial, ...] = ()
    cached_macs: int = 0


def split_work(
    network: NetworkSpec,
    configurations: Iterable[Assignment],
    *,
    workers: int = 1,
    bytes_per_head: int = 1 << 20,
    max_trials: int = MAX_TRIALS,
) -> list[WorkChunk]:
    """Cut configurations into units of equal prefixes, in the order of the trie.

    Units are as small as they get without repeating more than a hundredth of the work.
    workers: how many should find work at the same time. bytes_per_head: of one head's decoded boxes, all images.
    """
    by_options: dict[int, set[str]] = {}
    for configuration in configurations:
        by_options.setdefault(configuration.options, set()).add(configuration.key)
    heads = [ancestors(network)[index] for index in network.outputs]
    units = []
    for options, distinct_keys in sorted(by_options.items()):
        keys = sorted(distinct_keys)
        # Few configurations are better computed together than spread: what they share weighs more than the workers.
        min_units = min(workers, len(keys) // 16) if workers > 1 else 1
        together = forward_equivalents_of(network, keys)
        selected: list[WorkChunk] = []
        for length in range(len(network.convolutions) + 1):
            groups = [WorkChunk(options, tuple(g)) for _, g in groupby(keys, key=lambda key, n=length: key[:n])]  # type: ignore[misc]
            if not selected:
                if len(groups) >= min_units and all(_fits(u.keys, heads, bytes_per_head, max_trials) for u in groups):
                    selected = groups
            elif len(keys) <= MAX_UNCUT or planned_equivalents(network, groups) > (1 + MAX_REPEATED) * together:
                break
            else:
                selected = groups
        units += selected
    return units


def _fits(keys: Sequence[str], heads: Sequence[tuple[int, ...]], bytes_per_head: int, max_trials: int) -> bool:
    if len(keys) == 1:
        return True
    if len(keys) > max_trials:
        return False
    distinct = sum(len({restricted(key, positions) for key in keys}) for positions in heads)
    return distinct * bytes_per_head <= CANDIDATE_BYTES


def planned_equivalents(network: NetworkSpec, units: Iterable[WorkChunk]) -> Fraction:
    """Forward passes for one image that the units cost together."""
    return sum((forward_equivalents_of(network, unit.keys) for unit in units), Fraction(0))
