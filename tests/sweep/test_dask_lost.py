# SPDX-License-Identifier: MIT
"""A Dask scheduler, or its only worker, that is killed while a sweep waits for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

import pytest

from mpnet.errors import EngineError
from mpnet.sweep import dask_executor
from mpnet.sweep.dask_executor import DaskExecutor
from mpnet.sweep.units import Unit, UnitResult

SCHEDULER = """
import time
from distributed import LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=0, dashboard_address=None, host="127.0.0.1", processes=True)
    print(cluster.scheduler_address, flush=True)
    time.sleep(600)
"""


@dataclass(frozen=True)
class Sleeper:
    """A worker that never answers."""

    def __call__(self) -> Sleeper:
        return self

    def known_pass(self) -> str:
        return ""

    def evaluate(self, unit: Unit) -> UnitResult:
        time.sleep(600)
        raise AssertionError


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[tuple[str, dict[str, subprocess.Popen[str]]]]:
    pytest.importorskip("distributed", reason="SKIPPED WITHOUT DASK: pip install 'mpnet[dask]'")
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": path}
    script = tmp_path / "scheduler.py"
    script.write_text(SCHEDULER)
    scheduler = subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert scheduler.stdout is not None
    address = scheduler.stdout.readline().strip()
    worker = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny", "--no-dashboard"],
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
        start_new_session=True,
    )
    yield address, {"scheduler": scheduler, "worker": worker}
    for process in (worker, scheduler):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until_told(executor: DaskExecutor) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        executor.wait(0.5)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["scheduler", "worker"])
def test_what_is_lost_is_said_in_one_line(
    processes: tuple[str, dict[str, subprocess.Popen[str]]], which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, started = processes
    executor = DaskExecutor(address, Sleeper())
    monkeypatch.setattr(dask_executor, "CONNECT_SECONDS", 3.0)
    executor.submit(Unit(0, ("ffff",)))
    assert executor.wait(0.5) == []
    os.killpg(started[which].pid, signal.SIGKILL)
    with pytest.raises(EngineError, match=r"^--scheduler tcp://.*; finished trials are safe; start scheduler and") as told:
        wait_until_told(executor)
    assert "\n" not in str(told.value)
    executor.close()
