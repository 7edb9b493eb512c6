# SPDX-License-Identifier: MIT
"""Kills sweeps at random moments and looks at what is left; many sweeps on one store at once.

python -m tests.fuzz.kills KILLS PROCESSES [SEED] [greedy | holdout | exact_front | verify | log | salvage]

Kills hit the process (three of five), the process group with its two workers, or one worker; every twentieth sweep runs as
process 1 of a PID namespace where that is allowed. After each kill everything that had been stored must be there unchanged,
and the next sweep goes on at once. At last the store must equal that of a sweep that nobody disturbed.

Sweeps are forks of this process, and their workers forks of them that keep no file open, for importing takes several times as
long as the sweep: but for one in ten, and those in namespaces, which start as they do for users.

Of sweeps that verify in another engine three of four kills wait until they do. Those of `log` tell a tracking program, which
takes its time, everything by --log. At the end stand the most memory of a process and the seconds of the longest next command,
which goes on where one was killed.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterator, Sequence

import numpy as np

from mpnet.cli.main import cli, guarded
from mpnet.sweep.choose.verify import Verification
from mpnet.sweep.problem.front import non_dominated
from mpnet.sweep.result import VerifiedRows
from mpnet.sweep.store import Trial, TrialStore
from tests.fuzz.usage import usage
from tests.networks import small_cfg, write_experiment

SECONDS = 120
EXACT = False
VERIFYING = "verifying"
"""A file that is there while a sweep verifies."""
CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
SECTIONS = {
    "greedy": "sweep: {strategy: greedy, precisions: [fp32, int8]}\n",
    "holdout": "sweep: {strategy: greedy, precisions: [fp32, int8], holdout: 0.5}\n",
    "exact_front": "sweep: {strategy: exact_front, precisions: [fp32, fp16, int8], objectives: [agreement_AP, weight_bytes]}\n",
    "verify": "sweep: {strategy: greedy, precisions: [fp32, int8], budget: {trials: 8}, verify: {engine: onnxruntime}}\n",
    "log": "sweep: {strategy: greedy, precisions: [fp32, int8]}\n",
    "salvage": "sweep: {strategy: exhaustive, precisions: [fp32, fp16, int8]}\n",
}
"""Greedy commits again and again: one unit for each of its rounds. Which trials `exact_front` needs hangs on what it knew."""


LOG: list[str] = []
"""The options of a kind of sweeps that tell a tracking program."""
TRACKER = """
import os, time
def _told(*values, **options):
    with open(os.environ["TOLD"], "a") as file:
        file.write(repr((values, options)) + chr(10))
    time.sleep(0.005)
set_experiment = start_run = log_params = log_metrics = log_artifact = end_run = _told
"""
"""What stands for MLflow: it keeps what it is told, and takes as long as a server near by."""


def log_to_tracker(folder: Path) -> None:
    """Let sweeps tell a program that stands for MLflow, in this process and in those that are started as for users."""
    module, metadata = folder / "tracker" / "mlflow", folder / "tracker" / "mlflow-99.0.dist-info"
    for made in (module, metadata):
        made.mkdir(parents=True)
    (module / "__init__.py").write_text(TRACKER)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mlflow\nVersion: 99.0\n")
    sys.path.insert(0, str(module.parent))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(module.parent), os.environ.get("PYTHONPATH", ""))))
    os.environ["TOLD"] = str(folder / "told")
    LOG.extend(("--log", "mlflow"))


def arguments(store: Path, workers: int) -> list[str]:
    return [
        "sweep",
        *LOG,
        "experiment.yaml",
        "--store",
        str(store),
        "--workers",
        str(workers),
        "-q",
        "--json",
        "--set",
        "data.limit=2",
        "--set",
        "detection.confidence=0.5",
    ]


class _Worker(multiprocessing.get_context("fork").Process):  # type: ignore[misc]
    """A worker as a fork that has no more open than one that was started fresh, and answers signals as that does."""

    def run(self) -> None:
        kept_descriptor = self._args[0].fileno()
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            try:
                # Pipes are multiprocessing's own, by which either side learns of the other's end.
                if descriptor > 2 and descriptor != kept_descriptor and not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                    os.close(descriptor)
            except OSError:
                pass  # of listdir itself
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        super().run()


def forked(folder: Path, store: Path, workers: int, spawn: bool = False, words: Sequence[str] = ()) -> int:
    """Start a sweep in a fork, which has everything imported; return its process id. spawn: its workers are started as for
    users.

    words: of another command in its place.
    """
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if not spawn:
            fork = SimpleNamespace(Pipe=multiprocessing.Pipe, Process=_Worker)
            multiprocessing.get_context = lambda method=None: fork  # type: ignore[assignment,misc,return-value]
        os.chdir(folder)
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        code = 3
        Verification.verify = _marked(folder / VERIFYING)  # type: ignore[method-assign]
        try:
            code = guarded(lambda: cli.main(list(words) or arguments(store, workers), standalone_mode=False))
        finally:
            os._exit(code)
    return pid


def _marked(mark: Path) -> Callable[..., VerifiedRows]:
    """Return `Verification.verify` with a file that is there while it runs."""
    work = Verification.verify

    def verify(*arguments: Any) -> VerifiedRows:
        mark.touch()
        verified_rows = work(*arguments)
        mark.unlink(missing_ok=True)
        return verified_rows

    return verify


def reached(pid: int, mark: Path) -> bool:
    """Wait until a sweep verifies; whether it does, and has not ended before."""
    while not mark.exists():
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return False
        time.sleep(0.002)
    return True


def in_container(folder: Path, store: Path) -> int:
    """Start the same as process 1 of a namespace."""
    return subprocess.Popen(
        [*CONTAINER, sys.executable, "-m", "mpnet", *arguments(store, 1)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ).pid


def read_trials(store: Path) -> dict[str, Trial]:
    if not store.exists():
        return {}
    try:
        with TrialStore.read(store) as store_reader:
            return {trial.key: trial for number in store_reader.contexts() for trial in store_reader.trials(number)}
    except Exception as error:
        if "not a store of mpnet" in str(error) or "no such store" in str(error):
            return {}  # killed while it was made: an empty file
        raise


def children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def wait_for_exit(pid: int, seconds: float) -> int | None:
    """Wait so long for the end of a process. Result: its exit code, None while it lives."""
    deadline = time.monotonic() + seconds
    while True:
        finished_pid, status = os.waitpid(pid, os.WNOHANG)
        if finished_pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.003)


def kinds(rng: random.Random, has_container: bool) -> Iterator[str]:
    while True:
        yield (
            "namespace"
            if has_container and rng.random() < 0.05
            else rng.choice(("parent", "parent", "parent", "group", "worker"))
        )


def front(trials: dict[str, Trial]) -> set[str]:
    """Return the keys that no other one dominates."""
    keys = sorted(trials)
    points = np.array([[-trials[key].get("agreement_AP"), trials[key].get("weight_bytes")] for key in keys]).reshape(-1, 2)
    return {keys[index] for index in non_dominated(points)}


def kill_sweeps(
    folder: Path, kills: int, seed: int, expected: dict[str, Trial], took: float, verifying: float
) -> tuple[Counter[str], float]:
    """Kill sweeps. Result: what was killed and found, and the seconds of the longest next sweep.

    took: seconds of a sweep that nobody disturbs, within which it is killed. verifying: how many of them it verifies.
    """
    rng = random.Random(seed)
    has_container = subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode == 0
    kill_counts: Counter[str] = Counter()
    parted, verified, waited = 0, 0, 0.0
    number, kill_kinds = 0, kinds(rng, has_container)
    store, stored_trials, mark = folder / "0.sqlite", dict[str, Trial](), folder / VERIFYING
    while sum(kill_counts.values()) < kills:
        kind = next(kill_kinds)
        spawn = rng.random() < 0.1
        fresh = kind == "namespace" or (spawn and kind != "parent")
        delay = rng.uniform(0.2, 2.0) if fresh else rng.uniform(0.0, took if kind == "parent" else 2 * took)
        pid = in_container(folder, store) if kind == "namespace" else forked(folder, store, 1 if kind == "parent" else 2, spawn)
        if verifying and kind in ("parent", "group") and rng.random() < 0.75 and reached(pid, mark):
            delay = rng.uniform(0.0, verifying)
        code = wait_for_exit(pid, delay)
        if code is None:
            if kind == "worker":
                for child in children(pid)[-1:]:
                    os.kill(child, signal.SIGKILL)
                code = wait_for_exit(pid, SECONDS)  # it goes on by itself
                assert code == 0, f"a sweep whose worker was killed ended with {code}"
            elif kind == "parent":
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            else:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            kill_counts[kind] += 1
            if sum(kill_counts.values()) % 100 == 0:
                print(f"{dict(kill_counts)}: nothing lost, changed or repeated so far", flush=True)
        else:
            assert code == 0, f"an undisturbed sweep ended with {code}"
        now = read_trials(store)
        assert all(now.get(key) == trial for key, trial in stored_trials.items()), (
            f"kill {kill_counts}: a stored trial is lost or changed"
        )
        assert all(expected.get(key) == trial for key, trial in now.items()), f"kill {kill_counts}: a trial has other values"
        stored_trials = now
        parted += code is None and 0 < len(now) < len(expected)
        verified += mark.exists()
        mark.unlink(missing_ok=True)
        if len(now) == len(expected) or code == 0:
            waited = max(waited, finish(folder, store, expected))
            store.unlink()
            number += 1
            store, stored_trials = folder / f"{number}.sqlite", {}
    waited = max(waited, finish(folder, store, expected))
    return kill_counts + Counter(
        {"stores": number + 1, "found part of the trials": parted, "while verifying": verified}
    ), waited


def undisturbed(folder: Path, store: Path) -> tuple[float, float]:
    """Run a whole sweep in this process, so that all forks have imported what it imports.

    Result: seconds of a second one, in a fork, and how many of them it verified.
    """
    working_folder = os.getcwd()
    os.chdir(folder)
    try:
        with open(os.devnull, "w") as devnull, redirect_stdout(devnull):
            assert guarded(lambda: cli.main(arguments(store, 1), standalone_mode=False)) == 0
    finally:
        os.chdir(working_folder)
    began = time.monotonic()
    pid = forked(folder, folder / f"again-{store.name}", 1)
    verifying = time.monotonic() if reached(pid, folder / VERIFYING) else None
    assert wait_for_exit(pid, SECONDS) == 0
    end = time.monotonic()
    return end - began, 0.0 if verifying is None else end - verifying


def finish(folder: Path, store: Path, expected: dict[str, Trial]) -> float:
    """Return the seconds of a sweep that goes on where others were killed, and leaves what nobody disturbed would have left."""
    began = time.monotonic()
    code = wait_for_exit(forked(folder, store, 1), SECONDS)
    assert code == 0, f"the next sweep ended with {code} (None: still waiting after {SECONDS} s)"
    took = time.monotonic() - began
    now = read_trials(store)
    assert all(expected.get(key) == trial for key, trial in now.items())
    assert len(now) == len(expected) or (EXACT and front(now) == front(expected)), "not all is there"
    assert verified(store) == verified(folder / "whole.sqlite"), "another verification"
    time.sleep(0.01)
    leftovers = sorted(path.name for path in folder.glob(f"{store.name}-*"))
    assert leftovers == [], f"left beside a finished store: {leftovers}"
    return took


def verified(store: Path) -> list[Any]:
    """Return what of the front survives in another engine, and its figures, without times."""
    with TrialStore.read(store) as reader:
        rows = [row for name in reader.notes("verified/") for row in (reader.document(name) or {}).get("rows", [])]
    return [{name: value for name, value in row.items() if not name.endswith("latency_ms")} for row in rows]


def kill_salvages(folder: Path, kills: int, seed: int) -> tuple[Counter[str], float]:
    """Kill `sweep --salvage` of a store with a damaged trial: what it writes is there whole or not at all, and the next one
    writes it; in seconds at most the second of the result."""
    source, salvaged, rng, counts = folder / "whole.sqlite", folder / "salvaged.sqlite", random.Random(seed), Counter[str]()
    with TrialStore.open(source) as damaged_store:
        damaged_store._db.execute("UPDATE trials SET AP = 0.5 + AP / 2 WHERE key = 'ffff'")
    words = ["sweep", "--salvage", str(source), "--store", str(salvaged)]
    began = time.monotonic()
    assert wait_for_exit(forked(folder, source, 1, words=words), SECONDS) == 0
    took, waited, expected = time.monotonic() - began, 0.0, read_trials(salvaged)
    assert expected
    assert "ffff" not in expected
    while counts["killed"] < kills:
        salvaged.unlink(missing_ok=True)
        pid = forked(folder, source, 1, words=words)
        if wait_for_exit(pid, rng.uniform(0.0, took)) is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            counts["killed"] += 1
            if counts["killed"] % 100 == 0:
                print(f"{dict(counts)} so far", flush=True)
        counts["whole" if salvaged.exists() else "not there"] += 1
        ready = not salvaged.exists()  # who writes the same next removes what the killed one left
        if ready:
            began = time.monotonic()
            assert wait_for_exit(forked(folder, source, 1, words=words), SECONDS) == 0, "the next one failed"
            waited = max(waited, time.monotonic() - began)
        assert read_trials(salvaged) == expected, f"{counts}: something else was salvaged"
        leftovers = sorted(path.name for path in folder.glob("*salvaged*") if path != salvaged)
        leftovers += sorted(path.name for path in folder.glob(".*salvaged*")) if ready else []
        assert leftovers == [], f"left behind: {leftovers}"
    return counts, waited


def crowd(folder: Path, processes: int, seed: int, expected: dict[str, Trial]) -> float:
    """Run many sweeps on one store, every fifth killed; return the seconds of the next one."""
    rng = random.Random(seed)
    store = folder / "crowd.sqlite"
    alive = {forked(folder, store, 1): rng.random() < 0.2 for _ in range(processes)}
    for pid in [pid for pid, dies in alive.items() if dies]:
        time.sleep(rng.uniform(0.0, 0.05))
        os.kill(pid, signal.SIGKILL)
    for pid, dies in alive.items():
        code = wait_for_exit(pid, 10 * SECONDS)
        assert code in ((0, -signal.SIGKILL) if dies else (0,)), f"a sweep among {processes} ended with {code}"
    return finish(folder, store, expected)


def main(kills: int, processes: int, seed: int = 0, kind: str = "greedy") -> None:
    global EXACT
    EXACT = kind == "exact_front"
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as space:
        folder = Path(space)
        experiment = write_experiment(folder, small_cfg())
        text = experiment.read_text()
        if EXACT:  # held against all trials
            experiment.write_text(text + SECTIONS[kind].replace("exact_front", "exhaustive"))
            undisturbed(folder, folder / "whole.sqlite")
        if kind == "log":
            log_to_tracker(folder)
        experiment.write_text(text + SECTIONS[kind])
        took, verifying = undisturbed(folder, folder / ("exact.sqlite" if EXACT else "whole.sqlite"))
        expected = read_trials(folder / "whole.sqlite")
        if kind == "salvage":
            counts, waited = kill_salvages(folder, kills, seed)
            print(f"{kills} kills {dict(counts)}: whole or not there, {usage(waited)}", flush=True)
            return
        if kills:
            counts, waited = kill_sweeps(folder, kills, seed, expected, took, verifying)
            print(f"{kills} kills {dict(counts)}: nothing lost, changed or repeated, {usage(waited)}", flush=True)
            assert not LOG or (folder / "told").stat().st_size, "the tracking program was told nothing"
        if processes:
            waited = crowd(folder, processes, seed, expected)
            print(f"{processes} sweeps on one store, every fifth killed: all {len(expected)} trials in order, {usage(waited)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), *sys.argv[4:5])
