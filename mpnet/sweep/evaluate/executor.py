# SPDX-License-Identifier: MIT
"""Executors of chunks: this process, local worker processes, or Dask workers; all behind one interface.

Results do not depend on the choice: every worker computes the same bits. A worker that dies has its chunk results again.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import signal
import traceback
from collections import deque
from dataclasses import dataclass, field
from os.path import commonprefix
from typing import TYPE_CHECKING, Callable, Protocol

from mpnet.errors import ConfigError, EngineError, MpnetError
from mpnet.sweep.evaluate.work_chunks import ChunkResult, WorkChunk

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST = (1 << 31) - 1
MAX_DEATHS = 3
"""Workers that may die over one chunk before the chunk is blamed."""


class Worker(Protocol):
    """An evaluator of chunks."""

    def evaluate(self, chunk: WorkChunk) -> ChunkResult:
        """Evaluate a chunk of work."""
        ...

    def known_pass(self) -> str:
        """Return the digest of a pass that comes out the same wherever this release runs."""


Recipe = Callable[[], Worker]
"""Makes a worker where it is wanted; can be pickled."""


class Executor(Protocol):
    """slots: chunks that can be computed at the same time. Errors of a chunk are raised by `wait`."""

    slots: int

    def submit(self, chunk: WorkChunk) -> None:
        """Have a chunk computed, now or as soon as a slot is free."""

    def wait(self, timeout: float) -> list[ChunkResult]:
        """Return chunks that finished, waiting up to `timeout` seconds for the first."""

    def close(self) -> None:
        """Stop; chunks that are not finished are dropped."""


class InlineExecutor:
    """Computes in this process, one chunk for each call of `wait`."""

    slots = 1

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._waiting: deque[WorkChunk] = deque()

    def submit(self, chunk: WorkChunk) -> None:
        """Take on a chunk of work."""
        self._waiting.append(chunk)

    def wait(self, timeout: float) -> list[ChunkResult]:
        """Evaluate the next chunk and return its result."""
        if not self._waiting:
            return []
        return [self._worker.evaluate(self._waiting.popleft())]

    def close(self) -> None:
        """Drop the chunks that wait."""
        self._waiting.clear()


@dataclass
class _Process:
    process: SpawnProcess
    pipe: Connection[WorkChunk, ChunkResult | Exception]
    chunk: WorkChunk | None = None
    last_key: str = ""  # of the chunk that it had before


@dataclass
class ProcessExecutor:
    """Worker processes on this machine, each with threads of its own. Started fresh (spawn), so no lock is inherited.

    recipe: sent to every worker once.
    """

    recipe: Recipe
    slots: int
    _workers: list[_Process] = field(default_factory=list)
    _waiting: deque[WorkChunk] = field(default_factory=deque)
    _deaths: dict[WorkChunk, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise ConfigError(f"--workers: {self.slots} workers cannot work; use 1 or more")
        try:
            for _ in range(self.slots):
                self._workers.append(self._start())
        except BaseException:
            self.close()
            raise

    def _start(self) -> _Process:
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(theirs, self.recipe), daemon=True, name="mpnet-sweep-worker")
        # A worker that is still loading must not answer Ctrl-C, and none may be started that nobody would end. Starting the
        # first one starts multiprocessing's tracker, which would unblock signals.
        multiprocessing.resource_tracker.ensure_running()
        previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
        try:
            process.start()
            theirs.close()
            return _Process(process, ours)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)

    def submit(self, chunk: WorkChunk) -> None:
        """Take on a chunk of work."""
        self._waiting.append(chunk)
        self._hand_out()

    def _hand_out(self) -> None:
        for number, worker in enumerate(self._workers):
            if worker.chunk is None and self._waiting:
                # What begins as its last chunk ended, of which it has cached tensors.
                chunk = max(self._waiting, key=lambda waiting: len(commonprefix((worker.last_key, waiting.keys[0]))))
                self._waiting.remove(chunk)
                try:
                    worker.pipe.send(chunk)
                except OSError:
                    self._waiting.appendleft(chunk)
                    self._replace(number)
                    continue
                worker.chunk, worker.last_key = chunk, chunk.keys[-1]

    def wait(self, timeout: float) -> list[ChunkResult]:
        """Return the results that are there within `timeout` seconds, in no particular order."""
        self._hand_out()
        busy = {worker.pipe: number for number, worker in enumerate(self._workers) if worker.chunk is not None}
        results = []
        for pipe in multiprocessing.connection.wait(list(busy), timeout):
            assert isinstance(pipe, multiprocessing.connection.Connection)  # as all are that it waits for
            number = busy[pipe]
            worker = self._workers[number]
            try:
                answer = worker.pipe.recv()
            except (EOFError, OSError):
                assert worker.chunk is not None
                self._died(worker.chunk)
                self._replace(number)
                continue
            if isinstance(answer, Exception):
                raise answer
            worker.chunk = None
            results.append(answer)
        self._hand_out()
        return results

    def _died(self, chunk: WorkChunk) -> None:
        self._deaths[chunk] = self._deaths.get(chunk, 0) + 1
        if self._deaths[chunk] >= MAX_DEATHS:
            raise EngineError(
                f"{MAX_DEATHS} workers died over configurations {chunk.keys[0]} to {chunk.keys[-1]}, perhaps for want of "
                f"memory; use fewer --workers"
            )
        self._waiting.appendleft(chunk)

    def _replace(self, number: int) -> None:
        self._end(self._workers[number])
        self._workers[number] = self._start()

    @staticmethod
    def _end(worker: _Process) -> None:
        worker.pipe.close()
        worker.process.terminate()
        worker.process.join(2)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()

    def close(self) -> None:
        """End the workers and drop the chunks that wait."""
        for worker in self._workers:
            self._end(worker)
        self._workers = []
        self._waiting.clear()


def keep_heap() -> None:
    """Let this process keep free memory for the next tensors, where the C library can (glibc).

    By default it gives large blocks back at once, and the system clears each page anew before the next tensor is written:
    3 to 4 % of an exhaustive sweep. A worker's tensors are bounded (`evaluator.LIVE_BYTES`), and so is what it keeps.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    for parameter in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
        mallopt(parameter, _LARGEST)


def _serve(pipe: Connection[ChunkResult | Exception, WorkChunk], recipe: Recipe) -> None:
    """Run a worker: make it, then answer chunks until the pipe closes. Ctrl-C is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
    keep_heap()
    parent = os.getppid()
    worker: Worker | None = None
    while os.getppid() == parent:
        # A parent that was killed closes nothing here when siblings hold its end too, so look for it now and then.
        if not pipe.poll(1.0):
            continue
        try:
            chunk = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            worker = worker or recipe()
            pipe.send(worker.evaluate(chunk))
        except (BrokenPipeError, ConnectionResetError):
            return
        except MpnetError as error:
            pipe.send(error)
        except Exception:
            pipe.send(RuntimeError(f"a worker failed:\n{traceback.format_exc()}"))
