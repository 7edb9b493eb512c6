# SPDX-License-Identifier: MIT
"""Everything that mpnet writes, while the n-th change of a file, the n-th reading or the n-th request for much memory fails.

python -m tests.fuzz.writers TRIES SEED [WRITER...]: under tests/fuzz/disk.c, at so many n of each kind of
fault and writer; 0: at all. Each command must end with exit code 0, or with 2 and one line; no file under its own name may be
half written, nothing may be left beside it; and the same command must succeed when the machine does.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import json
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from mpnet.cli.main import cli, guarded
from tests.fuzz.build import under_disk
from tests.fuzz.kills import SECTIONS, arguments, read_trials
from tests.fuzz.usage import usage
from tests.networks import small_cfg, write_experiment

LIBRARY = ctypes.CDLL(None)
CHANGES, READS, MEMORY = range(3)
MUCH_MEMORY = (1 << 16) + 1
"""Bytes from which a request fails. Without fewer Python itself cannot go on. NumPy 2.4 ends by a signal where a ufunc lacks
memory for a buffer, 65,536 bytes: it raises MemoryError without holding Python's lock."""
FOREVER = 1 << 40
FAULTS: tuple[tuple[str, int, int, int], ...] = (
    ("change", CHANGES, 1, errno.ENOSPC),
    ("change", CHANGES, FOREVER, errno.ENOSPC),
    ("change", CHANGES, 1, errno.EIO),
    ("reading", READS, 1, errno.EIO),
    ("request for memory", MEMORY, 1, errno.ENOMEM),
)
"""Name, what fails, how often from the n-th on, and the error."""
_RUN_COMMAND = [
    "run",
    "experiment.yaml",
    "-q",
    "--set",
    "data.limit=2",
    "--set",
    "runtime.threads=1",
    "--set",
    "output=out/runs",
]
_CFG = ["--cfg", "net.cfg", "--weights", "net.weights"]
WRITERS: dict[str, list[str]] = {
    "run": _RUN_COMMAND,
    "sweep": arguments(Path("out/s.sqlite"), 1),
    "salvage": ["sweep", "--salvage", "damaged.sqlite", "--store", "out/salvaged.sqlite"],
    "report": ["report", "kept", "-o", "out/r.html"],
    "analyze": ["analyze", "experiment.yaml", "-q", "--images", "1", "--csv", "out/steps.csv"],
    "init": ["init", *_CFG, "--names", "net.names", "--images", "images", "-o", "out/new.yaml"],
    "import": ["import", "model.onnx", "-o", "out/imported"],
    "explain": ["explain", "kept", "-q", "--object", "scene-0.png:1", "--orders", "2", "--images", "out/lost"],
    "statement": ["report", "swept.sqlite:recommended", "-q", "--no-compute", "--statement", "-o", "out/statement.html"],
    "figures": [
        "report",
        "swept.sqlite",
        "-q",
        "--no-compute",
        "--figures",
        "out/figures",
        "--data",
        "out/data",
        "-o",
        "out/r.html",
    ],
    "graph": ["show", "kept", "--graph", "-o", "out/graph.html"],
    "graph-json": ["show", "kept", "--graph", "-o", "out/graph.json"],
    "trials": ["export", "swept.sqlite", "-o", "out/trials.csv"],
    "detect": ["detect", *_CFG, "images/scene-0.png", "--out", "out/drawn", "-q"],
    **{
        f"export-{target}": [
            "export",
            "net.cfg" if target == "ncnn" else "kept",
            "--to",
            target,
            *options,
            "-o",
            f"out/net{suffix}",
        ]
        for target, suffix, options in (
            ("bundle", ".mpnet", ["--no-profile"]),
            ("cfg", ".cfg", []),
            ("ncnn", ".param", []),
            ("onnx", ".onnx", []),
            ("tflite", ".tflite", []),
            ("yaml", ".yaml", []),
            ("recipe", ".recipe.json", ["--flavour", "onnxruntime"]),
        )
    },
}
"""Commands that write below out/, and prepared weights into the cache."""


class Outcome(NamedTuple):
    """What a command did. printed: on standard error. calls: how many could have failed. cpu_s: CPU time."""

    code: int
    printed: str
    calls: int
    cpu_s: float


def call(words: list[str]) -> int:
    return guarded(lambda: cli.main(words, standalone_mode=False))


def forked(words: list[str], kind: int = CHANGES, number: int = 0, count: int = 0, error: int = 0) -> Outcome:
    """Run the command in a fork, where calls fail from the `number`-th on."""
    with tempfile.TemporaryFile() as printed:
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 3
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                os.dup2(printed.fileno(), 2)
                _refuse(kind, number, count, error)
                code = call(words)
            finally:
                calls = LIBRARY.disk_calls()
                _refuse(CHANGES, 0, 0, 0)
                os.write(write_end, str(calls).encode())
                sys.stderr.flush()
                os._exit(code)
        os.close(write_end)
        with os.fdopen(read_end) as pipe:
            calls = int(pipe.read() or 0)
        _, status, resources = os.wait4(pid, 0)
        printed.seek(0)
        return Outcome(
            os.waitstatus_to_exitcode(status), printed.read().decode(), calls, resources.ru_utime + resources.ru_stime
        )


def _refuse(kind: int, number: int, count: int, error: int) -> None:
    LIBRARY.disk_refuse(kind, ctypes.c_long(number), ctypes.c_long(count), error, ctypes.c_size_t(MUCH_MEMORY))


def clean() -> None:
    for folder in ("out", "cache"):
        shutil.rmtree(folder, ignore_errors=True)
    os.mkdir("out")


def read_outputs() -> dict[str, bytes]:
    """Return what lies below out/: content by path, of a link where it leads to. Stores are not in it: read_trials() reads
    them."""
    return {
        str(path): os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        for path in sorted(Path("out").rglob("*"))
        if (path.is_symlink() or path.is_file()) and ".sqlite" not in path.name
    }


def _read_table(content: bytes) -> object:
    """Return what does not change from run to run of numbers of a plot: of JSON its names, else how many lines and cells."""
    text = content.decode()
    if text.startswith("{"):
        return sorted(json.loads(text))
    return [line.count(",") for line in text.split("\n")]


def half_written(expected_files: dict[str, bytes], fixed_names: set[str]) -> list[str]:
    """Return files that an undisturbed command wrote in another way, or not at all. fixed_names: those without times and
    notes."""
    now, faults = read_outputs(), []
    for name, content in now.items():
        expected = expected_files.get(name)
        if name.startswith("out/data/") and expected is not None and _read_table(content) == _read_table(expected):
            continue  # what it holds may be a time of another length
        smallest_share = 0 if name.endswith(".html") else 0.9  # a report says what it cannot read, and goes without
        if expected is None:
            faults.append(f"left: {name}")
        elif (
            content[-8:] != expected[-8:]
            or (name in fixed_names and content != expected)
            or len(content) < smallest_share * len(expected)
        ):
            faults.append(f"half: {name}, {len(content)} of {len(expected)} bytes")
    for folder in {os.path.dirname(name) for name in now if name.startswith("out/runs/")}:
        # A result's folder is published whole. Its parent has only a link.
        missing_names = {name for name in expected_files if os.path.dirname(name) == folder} - set(now)
        faults += [f"missing in a result: {name}" for name in missing_names if not name.endswith("latest")]
    return faults


def prepare() -> None:
    """Write what commands read, in the current folder."""
    experiment = write_experiment(Path.cwd(), small_cfg())
    experiment.write_text(experiment.read_text().replace("confidence: 0.05", "confidence: 0.5") + SECTIONS["greedy"])
    clean()
    assert call(_RUN_COMMAND) == 0
    shutil.copytree(Path("out/runs/tiny/latest").resolve(), "kept")
    assert call(arguments(Path("damaged.sqlite"), 1)) == 0
    shutil.copy("damaged.sqlite", "swept.sqlite")
    with open("damaged.sqlite", "r+b") as store:
        store.seek(-5000, os.SEEK_END)
        store.write(b"\xff" * 100)
    with contextlib.suppress(ImportError):
        import onnx  # noqa: F401

        assert call(["export", "net.cfg", "--to", "onnx", "-o", "model.onnx"]) == 0


def attack(name: str, tries: int, rng: random.Random) -> str:
    """Attack one writer, `tries` times for each kind of fault. Result: a line of what was tried.

    Raises: AssertionError where something is wrong.
    """
    words = WRITERS[name]
    is_sweep = name == "sweep"
    contents = []
    for _ in range(2):
        clean()
        undisturbed = forked(words)
        assert undisturbed.code == 0, f"{name}: {undisturbed.printed}"
        contents.append(read_outputs())
    expected_files, second = contents
    fixed_names = {
        name for name, content in expected_files.items() if second[name] == content and not name.endswith((".html", ".json"))
    }
    trials = read_trials(Path("out/s.sqlite")) if is_sweep else {}
    assert expected_files or name in ("sweep", "salvage")
    try_count, refused, slowest = 0, 0, 0.0
    for fault, kind, count, error in FAULTS:
        clean()
        calls = forked(words, kind).calls
        for number in range(1, calls + 1) if not tries else sorted(rng.sample(range(1, calls + 1), min(tries, calls))):
            clean()
            code, printed, _, cpu_s = forked(words, kind, number, count, error)
            description = f"{name}, {fault} {number} of {calls}, {count}, {os.strerror(error)}: exit code {code}: {printed}"
            lines = [line for line in printed.splitlines() if line.startswith("error: ")]
            assert code in (0, 2), description
            assert len(lines) == (code == 2), description
            assert "Traceback" not in printed, description
            faults = half_written(expected_files, fixed_names)
            assert not faults, f"{description}\n{faults}"
            now = read_trials(Path("out/s.sqlite")) if is_sweep else {}
            assert all(trials[key] == trial for key, trial in now.items()), description
            assert code or not is_sweep or now == trials, description
            assert code or sorted(read_outputs()) == sorted(expected_files), description
            code, printed, *_ = forked(words)
            # What was written before the fault may be in the way of a command that replaces nothing.
            exists = code == 2 and "exists" in printed and any(Path("out").iterdir())
            assert code == 0 or exists, f"{description}\nand again: {printed}"
            assert exists or sorted(read_outputs()) == sorted(expected_files), description
            try_count += 1
            slowest = max(slowest, cpu_s)
            refused += bool(lines)
    return f"{name}: {try_count} tries, {refused} ended in one line, nothing half or lost, {usage(slowest)}"


def main(tries: int, seed: int, names: list[str]) -> int:
    os.environ["OMP_NUM_THREADS"] = "1"
    rng, has_failed = random.Random(seed), False
    with tempfile.TemporaryDirectory() as space:
        os.chdir(space)
        os.environ["MPNET_CACHE"] = f"{space}/cache"
        with contextlib.redirect_stdout(io.StringIO()):
            prepare()
        for name in names or WRITERS:
            if name == "import" and not Path("model.onnx").exists():
                continue
            try:
                print(attack(name, tries, rng), flush=True)
            except AssertionError as error:
                has_failed = True
                print(error, flush=True)
    return int(has_failed)


if __name__ == "__main__":
    under_disk()
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
