# SPDX-License-Identifier: MIT
"""Chunks computed by Dask workers, on other machines or on this one. Dask is an extra: pip install 'mpnet[dask]'.

Workers may be boards: bits do not depend on the CPU. They do depend on the release, so each worker shows what it is, and
what a known pass gives there, before a result of it is believed. Each makes its evaluator once and keeps it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import pkgutil
import secrets
import threading
import time
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING

from mpnet import __version__
from mpnet.config.identity import ARITHMETIC_VERSION
from mpnet.errors import ConfigError, EngineError, MpnetError
from mpnet.kernels.core import PACK_VERSION
from mpnet.kernels.isa import active_level
from mpnet.sweep.evaluate.executor import MAX_DEATHS, Recipe, Worker
from mpnet.sweep.evaluate.work_chunks import ChunkResult, WorkChunk

if TYPE_CHECKING:
    from distributed import Future

CONNECT_SECONDS = 20.0
CLOSE_SECONDS = 5.0
_NO_WORKERS = "it has no workers any more"
_CONNECTION_ERRORS = (OSError, asyncio.CancelledError, concurrent.futures.CancelledError)
"""What Dask's calls raise when the scheduler is gone."""
_evaluators: dict[str, tuple[Worker, Credentials]] = {}
"""In a Dask worker process: evaluators by the name of their sweep; only the last one is kept."""
_making_lock = threading.Lock()


@dataclass(frozen=True)
class Credentials:
    """The versions that decide the bits that a process computes.

    release, arithmetic, packing: versions of mpnet, of its arithmetic, and of the order of packed weights.
    level: the kernel table in use, for people: all tables give the same bits.
    known_pass: as `Worker.known_pass`.
    """

    release: str
    arithmetic: str
    packing: int
    level: str
    known_pass: str

    @staticmethod
    def of(worker: Worker) -> Credentials:
        """Return the credentials of this process, which made the worker."""
        return Credentials(__version__, ARITHMETIC_VERSION, PACK_VERSION, active_level(), worker.known_pass())

    def __str__(self) -> str:
        return f"mpnet {self.release}, arithmetic {self.arithmetic}, packing {self.packing}, {self.level}"

    def agrees(self, other: Credentials) -> bool:
        """Return whether both compute the same bits."""
        return self == replace(other, level=self.level)


def evaluate_where_bits_agree(
    name: str, recipe: Recipe, client_credentials: Credentials, chunk: WorkChunk
) -> tuple[Credentials, ChunkResult | None]:
    """Run a chunk in a Dask worker: return what it is, and the result unless it computes other bits than expected.

    A release that does not check has no function of this name.
    """
    with _making_lock:
        if name not in _evaluators:
            _evaluators.clear()
            worker = recipe()
            _evaluators[name] = worker, Credentials.of(worker)
        worker, credentials = _evaluators[name]
    return credentials, worker.evaluate(chunk) if credentials.agrees(client_credentials) else None


class DaskExecutor:
    """Chunks as Dask tasks. Dask itself gives the tasks of a dead worker to another one."""

    def __init__(self, address: str, recipe: Recipe) -> None:
        """Connect to a scheduler. address: such as tcp://host:8786.

        Raises: ConfigError when Dask is not installed, nobody answers, no worker is there or one is of another release.
        """
        try:
            import distributed
        except ImportError:
            raise ConfigError("--scheduler: Dask is not installed; pip install 'mpnet[dask]'") from None
        self._distributed: ModuleType = distributed
        _silence(distributed)
        try:
            self._client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise ConfigError(
                f"--scheduler {address}: no Dask scheduler answers ({error}); start one with `dask scheduler`"
            ) from None
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError:
            self._client.close()
            raise ConfigError(f"--scheduler {address}: has no workers; start some: `dask worker {address}`") from None
        self.slots = max(1, sum(self._client.nthreads().values()))
        # By Dask's future: the chunk, and which sending of the recipe it was to be computed with.
        self._running: dict[Future, tuple[WorkChunk, Future]] = {}
        self._lost_times: dict[WorkChunk, int] = {}
        self._address, self._workers_seen = address, time.monotonic()
        self._workers: set[str] = set()
        self._credentials: Credentials | None = None  # known once no worker is of another release
        try:
            self._check()
            self._name, self._credentials = secrets.token_hex(16), Credentials.of(recipe())
            self._recipe = recipe
            self._sent_recipe = self._send()
        except BaseException:
            self.close()
            raise

    def _send(self) -> Future:
        """Send the recipe to all workers: it holds images and weights, so it is sent once, not with every task."""
        try:
            return self._client.scatter(self._recipe, broadcast=True, hash=False)
        except _CONNECTION_ERRORS:
            raise self._connection_error() from None
        except Exception as error:  # whatever a worker raises that lacks our modules
            raise self._refusal(f"a Dask worker cannot read what it is sent ({_one_line(error)})") from None

    def submit(self, chunk: WorkChunk) -> None:
        """Take on a chunk of work."""
        self._check()
        assert self._credentials is not None
        arguments = self._name, self._sent_recipe, self._credentials, chunk
        future = self._client.submit(evaluate_where_bits_agree, *arguments, pure=False, retries=0)
        self._running[future] = chunk, self._sent_recipe

    def wait(self, timeout: float) -> list[ChunkResult]:
        """Return the results that are there within `timeout` seconds, in no particular order."""
        if not self._running:
            return []
        self._check()
        client_credentials = self._credentials
        assert client_credentials is not None
        try:
            with self._client.as_current():
                futures = self._distributed.wait(list(self._running), timeout=timeout, return_when="FIRST_COMPLETED").done
        except TimeoutError:
            return []
        except _CONNECTION_ERRORS:
            self._check()
            futures = [future for future in self._running if future.done()]  # those that were cancelled among them
            if not futures:
                raise self._connection_error() from None
        results = []
        for future in futures:
            chunk, sent_recipe = self._running.pop(future)
            try:
                worker_credentials, result = future.result()
            except MpnetError:
                raise
            except (*_CONNECTION_ERRORS, Exception) as error:
                self._check()  # a worker of another release, which came lately, may fail in any way
                if isinstance(error, self._distributed.KilledWorker):
                    raise _deadly_chunk_error(chunk) from None
                if not isinstance(error, _CONNECTION_ERRORS):
                    raise
                self._submit_again(chunk, sent_recipe)
                continue
            if result is None or not worker_credentials.agrees(client_credentials):
                differs = replace(worker_credentials, known_pass=client_credentials.known_pass).agrees(client_credentials)
                reason = "and computes other bits in a known pass" if differs else "which may compute other bits"
                raise self._refusal(f"a Dask worker is {worker_credentials}, {reason}")
            results.append(result)
        return results

    def _submit_again(self, chunk: WorkChunk, sent_recipe: Future) -> None:
        """Submit a chunk again that was lost with its worker, once there are workers again."""
        self._lost_times[chunk] = self._lost_times.get(chunk, 0) + 1
        if self._lost_times[chunk] == MAX_DEATHS:
            raise _deadly_chunk_error(chunk)
        if sent_recipe is self._sent_recipe:
            try:
                self._client.wait_for_workers(1, timeout=CONNECT_SECONDS)
            except TimeoutError:
                raise self._connection_error(_NO_WORKERS) from None
            except _CONNECTION_ERRORS:
                raise self._connection_error() from None
            self._check()
            self._sent_recipe = self._send()
        self.submit(chunk)

    def _refusal(self, worker: str) -> ConfigError:
        release = self._credentials or f"mpnet {__version__}"
        return ConfigError(
            f"--scheduler {self._address}: {worker}; this process is {release}, so nothing of it is kept; install the same "
            f"release on all workers, start them again, and run the same command"
        )

    def _check(self) -> None:
        """Check the scheduler and its workers.

        Workers are asked for their release in a way that every release answers. Raises: EngineError when the scheduler is gone,
        or has had no worker for a while; ConfigError when a worker is of another release.
        """
        if self._client.status != "running":
            raise self._connection_error()
        try:
            workers = set(self._client.nthreads())
            new_workers = sorted(workers - self._workers)
            releases = (
                self._client.run(pkgutil.resolve_name, "mpnet:__version__", workers=new_workers, on_error="return")
                if new_workers
                else {}
            )
        except _CONNECTION_ERRORS:
            raise self._connection_error() from None
        for worker, release in releases.items():
            if isinstance(release, OSError):
                workers.discard(worker)  # it died meanwhile
            elif isinstance(release, Exception):
                raise self._refusal(f"worker {worker} cannot load mpnet ({_one_line(release)})")
            elif release != __version__:
                raise self._refusal(f"worker {worker} is mpnet {release}")
        self._workers = workers
        if workers:
            self._workers_seen = time.monotonic()
        elif time.monotonic() - self._workers_seen > CONNECT_SECONDS:
            raise self._connection_error(_NO_WORKERS)

    def _connection_error(self, reason: str = "it does not answer any more") -> EngineError:
        return EngineError(
            f"--scheduler {self._address}: {reason}; finished trials are safe; start scheduler and "
            f"workers again, and run the same command"
        )

    def close(self) -> None:
        """Cancel what is running and close the client."""
        if self._client.status == "running":
            self._client.cancel(list(self._running))
        self._running.clear()
        self._client.close(timeout=CLOSE_SECONDS)


def _deadly_chunk_error(chunk: WorkChunk) -> EngineError:
    return EngineError(
        f"{MAX_DEATHS} Dask workers died over configurations {chunk.keys[0]} to {chunk.keys[-1]}, perhaps for want of memory"
    )


def _silence(distributed: ModuleType) -> None:
    """Keep Dask's client from logging tracebacks of what is raised here in one line."""
    for name in logging.root.manager.loggerDict:
        if name.partition(".")[0] in (distributed.__name__, "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _one_line(reason: object) -> str:
    return " ".join(str(reason).split())[:200]
