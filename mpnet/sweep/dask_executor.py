"""Units computed by Dask workers, on other machines or on this one. Dask is an extra: pip install 'mpnet[dask]'.

Workers may be boards: bits do not depend on the CPU. Each makes its evaluator once and keeps it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from typing import Any

from mpnet.config.identity import digest_of
from mpnet.errors import ConfigError, EngineError
from mpnet.sweep.executor import MAX_DEATHS, Recipe, Worker
from mpnet.sweep.units import Unit, UnitResult

CONNECT_SECONDS = 20.0
CLOSE_SECONDS = 5.0
_GONE = (OSError, asyncio.CancelledError, concurrent.futures.CancelledError)
"""What Dask's calls raise when the scheduler is gone."""
_made: dict[str, Worker] = {}
"""In a Dask worker process: evaluators by the name of their recipe; only the last one is kept."""
_making = threading.Lock()


def evaluate_remotely(name: str, recipe: Recipe, unit: Unit) -> UnitResult:
    """Runs in a Dask worker."""
    with _making:
        if name not in _made:
            _made.clear()
            _made[name] = recipe()
        worker = _made[name]
    return worker.evaluate(unit)


class DaskExecutor:
    """Units as Dask tasks. Dask itself gives the tasks of a dead worker to another one."""

    def __init__(self, address: str, recipe: Recipe) -> None:
        """address: of the scheduler, such as tcp://host:8786.

        Raises: ConfigError when Dask is not installed, nobody answers or no worker is there.
        """
        try:
            import distributed
        except ImportError:
            raise ConfigError("--scheduler: Dask is not installed; pip install 'mpnet[dask]'") from None
        self._distributed: Any = distributed
        try:
            self._client: Any = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
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
        self._name = digest_of([address, id(recipe), id(self)])
        # The recipe holds images and weights: sent once, not with every task.
        self._recipe = self._client.scatter(recipe, broadcast=True, hash=False)
        self._running: dict[Any, Unit] = {}
        self._address, self._workers_seen = address, time.monotonic()

    def submit(self, unit: Unit) -> None:
        self._check()
        future = self._client.submit(evaluate_remotely, self._name, self._recipe, unit, pure=False, retries=0)
        self._running[future] = unit

    def wait(self, timeout: float) -> list[UnitResult]:
        if not self._running:
            return []
        self._check()
        try:
            with self._client.as_current():
                finished = self._distributed.wait(list(self._running), timeout=timeout, return_when="FIRST_COMPLETED").done
        except TimeoutError:
            return []
        except _GONE as error:
            raise self._lost(error) from None
        done = []
        for future in finished:
            unit = self._running.pop(future)
            try:
                done.append(future.result())
            except self._distributed.KilledWorker:
                raise EngineError(
                    f"{MAX_DEATHS} Dask workers died over configurations {unit.keys[0]} to {unit.keys[-1]}, perhaps "
                    f"for want of memory"
                ) from None
            except _GONE as error:
                raise self._lost(error) from None
        return done

    def _check(self) -> None:
        """Raises: EngineError, one line, when the scheduler is gone, or has had no worker for a while."""
        if self._client.status != "running":
            raise self._lost("it does not answer any more")
        if self._client.scheduler_info()["workers"]:
            self._workers_seen = time.monotonic()
        elif time.monotonic() - self._workers_seen > CONNECT_SECONDS:
            raise self._lost("it has no workers any more")

    def _lost(self, reason: object) -> EngineError:
        said = " ".join(str(reason).split())[:200] or "was lost"
        return EngineError(
            f"--scheduler {self._address}: {said}; finished trials are safe; start scheduler and workers again, "
            f"and run the same command"
        )

    def close(self) -> None:
        if self._client.status == "running":
            self._client.cancel(list(self._running))
        self._running.clear()
        self._client.close(timeout=CLOSE_SECONDS)
