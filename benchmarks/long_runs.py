# SPDX-License-Identifier: MIT
"""What a long run leaves behind: resident memory, descriptors, threads and temporary files after a tenth of it and at its end.

python -m benchmarks.long_runs trials 100000    # of a sweep, whose values follow from their keys
python -m benchmarks.long_runs frames 100000    # through a tiny network's `detect`
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from itertools import islice
from pathlib import Path
from typing import Iterator

import numpy as np

from mpnet.api.network import load_network
from mpnet.config.measures import trial_columns
from mpnet.sweep.evaluate.executor import InlineExecutor
from mpnet.sweep.evaluate.work_chunks import ChunkResult, WorkChunk
from mpnet.sweep.problem.problem import Batch, Problem, Walk, objectives_of
from mpnet.sweep.problem.space import AllAssignments, Assignment, build_space
from mpnet.sweep.search.loop import Sweep, WorkerPool
from mpnet.sweep.search.state import SweepState
from mpnet.sweep.store import Subject, Trial, TrialStore
from tests.networks import small_cfg, write_experiment
from tests.sweep.sweep_networks import yolov3_tiny

VALUES = 20
"""Of a trial, as those of a detector with images held out."""


def resident_bytes() -> int:
    """Return the memory of this process that is in RAM, in bytes."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def left_behind() -> tuple[int, int, int]:
    """Open descriptors, threads, and files in the folder for temporary ones."""
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(os.listdir(tempfile.gettempdir()))


class Computed:
    """A worker whose values take no time."""

    def known_pass(self) -> str:
        """Return '': all passes are equal here."""
        return ""

    def evaluate(self, unit: WorkChunk) -> ChunkResult:
        """Return trials whose values are hashes; nothing is run."""
        names = trial_columns()[:VALUES]
        trials = [Trial(key, {name: hash((key, name)) % 10_000 / 100 for name in names}) for key in unit.keys]
        return ChunkResult(unit, tuple(trials), 1000 * len(trials))


def trials(count: int, folder: Path) -> Iterator[int]:
    """How many trials a sweep knows, again and again."""
    network = yolov3_tiny()
    problem = Problem(
        build_space(network, ("fp32", "fp16", "int8")),
        tuple(layer.macs for layer in network.convolutions),
        objectives_of(("AP", "bit_operations")),
    )

    class FirstAssignments(AllAssignments):
        def __iter__(self) -> Iterator[Assignment]:
            return islice(super().__iter__(), count)

    def propose_first(problem: Problem) -> Walk:
        yield Batch(FirstAssignments(problem.space))

    counts = [0]

    def update(state: SweepState) -> None:
        if len(state.trials) > counts[-1]:
            counts.append(len(state.trials))
            report(counts[-1], count)

    with TrialStore.open(folder / "sweep.sqlite", Subject("n", "w", "d", "p")) as store:
        contexts = [store.context({})]
        Sweep(problem, network, store, contexts, lambda: WorkerPool(InlineExecutor(Computed())), on_update=update).run(
            propose_first
        )
    yield counts[-1]


def frames(count: int, folder: Path) -> Iterator[int]:
    """How many frames went through a network, one by one."""
    write_experiment(folder, small_cfg())
    network = load_network(folder / "net.cfg", folder / "net.weights")
    frame = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    for number in range(1, count + 1):
        network.detect(frame)
        yield number


_reported: dict[int, int] = {}


def report(progress: int, count: int) -> None:
    """Print memory and what is left at each tenth."""
    tenth = 10 * progress // count
    if tenth in _reported:
        return
    _reported[tenth] = resident_bytes()
    print(
        f"{progress:,}: {_reported[tenth] / 1e6:.1f} MB resident; descriptors, threads, temporary files {left_behind()}",
        flush=True,
    )


def main(kind: str, count: int) -> None:
    """Run one kind of work `count` times and print what it takes."""
    bytes_before = resident_bytes()
    with tempfile.TemporaryDirectory() as folder:
        for progress in {"trials": trials, "frames": frames}[kind](count, Path(folder)):
            report(progress, count)
    bytes_at_tenth, bytes_at_end = _reported[1], _reported[10]
    print(
        f"{count:,} {kind}: {bytes_before / 1e6:.1f} MB before, "
        f"{100 * (bytes_at_end - bytes_at_tenth) / bytes_at_tenth:+.1f} % after the first tenth, "
        f"{(bytes_at_end - bytes_at_tenth) / (0.9 * count):.0f} bytes for each"
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
