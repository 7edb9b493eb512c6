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

from mpnet.sweep.evaluate.work_chunks import ChunkResult, WorkChunk

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
    """A worker that takes its time."""

    seconds: float

    def __call__(self) -> Sleeper:
        return self

    def known_pass(self) -> str:
        return ""

    def evaluate(self, unit: WorkChunk) -> ChunkResult:
        time.sleep(self.seconds)
        return ChunkResult(unit, (), 0)


class Cluster:
    """A scheduler and its workers, each a process group of its own."""

    def __init__(self, folder: Path) -> None:
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self._processes: list[subprocess.Popen[str]] = []
        script = folder / "scheduler.py"
        script.write_text(SCHEDULER)
        self.processes["scheduler"] = self.start(str(script))
        stdout = self.processes["scheduler"].stdout
        assert stdout is not None
        self.address = stdout.readline().strip()
        self.add_worker()

    def start(self, *arguments: str, stderr: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._processes.append(
            subprocess.Popen(
                [sys.executable, *arguments],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=environment,
                start_new_session=True,
            )
        )
        return self._processes[-1]

    def add_worker(self) -> None:
        self.processes["worker"] = self.start("-m", "distributed.cli.dask_worker", self.address, "--no-nanny", "--no-dashboard")

    def end(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    pytest.importorskip("distributed", reason="SKIPPED WITHOUT DASK: pip install 'mpnet[dask]'")
    new_cluster = Cluster(tmp_path)
    yield new_cluster
    new_cluster.end()


CLIENT = """
import sys
from mpnet.errors import EngineError
from mpnet.sweep.evaluate import dask_executor
from mpnet.sweep.evaluate.work_chunks import WorkChunk
from tests.sweep.test_dask_executor_lost import Sleeper
executor = dask_executor.DaskExecutor(sys.argv[1], Sleeper(float(sys.argv[2])))
dask_executor.CONNECT_SECONDS = float(sys.argv[3])
executor.submit(WorkChunk(0, ("ffff",)))
assert executor.wait(0.5) == []
print("waiting", flush=True)
try:
    while not (done := executor.wait(0.5)):
        pass
    print(done[0].chunk.keys)
except EngineError as error:
    print(error)
executor.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("role", "reason"), [("scheduler", "does not answer any more"), ("worker", "has no workers any more")])
def test_what_is_lost_is_said_in_one_line(cluster: Cluster, role: str, reason: str) -> None:
    client = cluster.start("-c", CLIENT, cluster.address, "600", "3", stderr=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdout.readline() == "waiting\n"
    os.killpg(cluster.processes[role].pid, signal.SIGKILL)
    output, error = client.communicate(timeout=100)
    assert (error, client.returncode) == ("", 0)
    assert output == (
        f"--scheduler {cluster.address}: it {reason}; finished trials are safe; start scheduler and workers again, and run "
        f"the same command\n"
    )


@pytest.mark.slow
def test_a_worker_that_comes_takes_over_from_the_last_one_that_died(cluster: Cluster) -> None:
    client = cluster.start("-c", CLIENT, cluster.address, "3", "60", stderr=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdout.readline() == "waiting\n"
    os.killpg(cluster.processes["worker"].pid, signal.SIGKILL)
    cluster.add_worker()
    assert client.communicate(timeout=100) == ("('ffff',)\n", "")
