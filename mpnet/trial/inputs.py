# SPDX-License-Identifier: MIT
"""Images -> network inputs, decoded ahead by a pool of threads: a large image takes longer than the network."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Callable, Iterator, Sequence, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpnet.data.dataset import ImageRecord
from mpnet.detection.conditions import Condition
from mpnet.detection.preprocess import Geometry, preprocess
from mpnet.errors import ConfigError, DataError
from mpnet.messages import all_at_once
from mpnet.model.network import NetworkSpec

LoadImage = Callable[[ImageRecord], NDArray[np.uint8]]
KEEP_BYTES = 768 << 20
"""Inputs are kept in memory for the next pass when all of them together need no more than this."""

_Prepared = tuple[NDArray[np.float32], Geometry]
_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, eq=False)
class Batch:
    """start: position of the first image; x: float32 (n, h, w, c); geometry: where each image lies in its input."""

    start: int
    x: NDArray[np.float32]
    geometry: tuple[Geometry, ...]


def in_order(work: Callable[[_Item], _Answer], items: Sequence[_Item], workers: int) -> Iterator[_Answer]:
    """Yield work(item) for every item, in their order, computed by a pool of threads a little ahead.

    The first exception ends it; what has not begun by then never does.
    """
    pool = ThreadPoolExecutor(max(1, workers), thread_name_prefix="mpnet")
    pending: deque[Future[_Answer]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) > 2 * workers:  # enough ahead that nobody waits, few enough that memory stays small
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def spread(available: int, requested: int) -> list[int]:
    """Return the positions of `requested` images, evenly spread; all when there are no more."""
    if requested >= available:
        return list(range(available))
    return [i * available // requested for i in range(requested)]


class Inputs:
    """The images of a data set as inputs of one network; each is decoded once when there is memory to keep them."""

    def __init__(
        self,
        records: Sequence[ImageRecord],
        network: NetworkSpec,
        resize: str,
        load: LoadImage,
        workers: int = 2,
        keep_bytes: int = KEEP_BYTES,
        condition: Condition | None = None,
    ) -> None:
        """Keep what the inputs are made of.

        load: record -> uint8 (h, w, 3) RGB; workers: threads that decode; condition: what each image is put through, None:
        nothing.

        Raises: ConfigError for a network that does not take RGB images.
        """
        if network.channels != 3:
            raise ConfigError(f"{network.source}: channels={network.channels}, but images are RGB; use channels=3")
        self.records = tuple(records)
        self._network, self._resize, self._load = network, resize, load
        self._workers, self.condition = max(1, workers), condition
        size_bytes = 4 * network.width * network.height * network.channels * len(self.records)
        self._kept: list[_Prepared | None] | None = [None] * len(self.records) if size_bytes <= keep_bytes else None

    def __len__(self) -> int:
        return len(self.records)

    def of(self, positions: Sequence[int]) -> Inputs:
        """Return the inputs of the images at `positions`; they keep decoded images of their own."""
        records = [self.records[position] for position in positions]
        return Inputs(records, self._network, self._resize, self._load, self._workers, condition=self.condition)

    def under(self, condition: Condition | None) -> Inputs:
        """Return the same images under a condition, in place of the one that they are under; None: as they are."""
        return Inputs(self.records, self._network, self._resize, self._load, self._workers, condition=condition)

    def fitted(self, resize: str) -> Inputs:
        """Return the same images fitted into the network's input in another way; they keep decoded images of their own."""
        if resize == self._resize:
            return self
        return Inputs(self.records, self._network, resize, self._load, self._workers, condition=self.condition)

    def take(self, positions: Sequence[int]) -> Batch:
        """Read the images at `positions`, read by the calling thread. Raises: DataError for a broken image."""
        prepared = [self._one(position) for position in positions]
        return Batch(positions[0], np.concatenate([x for x, _ in prepared]), tuple(geometry for _, geometry in prepared))

    def batches(self, size: int, positions: Sequence[int] | None = None) -> Iterator[Batch]:
        """Yield the images at `positions` (all by default) in order, `size` at a time, read ahead by a pool of threads.

        `start` counts within `positions`. Raises: DataError for a broken image, when its turn comes.
        """
        requested = list(range(len(self.records))) if positions is None else list(positions)
        groups = [requested[start : start + size] for start in range(0, len(requested), size)]
        start = 0
        for batch in in_order(self.take, groups, self._workers):
            yield Batch(start, batch.x, batch.geometry)
            start += len(batch.x)

    def check(self) -> None:
        """Decode every image, so that none ends hours of work. Where there is memory to keep them it costs nothing.

        Raises: DataError that names all broken ones.
        """
        broken = [problem for problem in in_order(self._problem, range(len(self.records)), self._workers) if problem]
        if broken:
            raise DataError(all_at_once(broken, len(self.records), "images"))

    def _problem(self, position: int) -> str:
        try:
            if self._kept is None:
                self._load(self.records[position])
            else:
                self._one(position)
        except DataError as error:
            return str(error)
        return ""

    def _one(self, position: int) -> _Prepared:
        if self._kept is not None and (cached := self._kept[position]) is not None:
            return cached
        record = self.records[position]
        image = self._load(record)
        if self.condition is not None:
            image = self.condition.apply(image, record.sha256)
        prepared = preprocess(image, self._network.width, self._network.height, self._resize)
        if self._kept is not None:
            self._kept[position] = prepared
        return prepared
