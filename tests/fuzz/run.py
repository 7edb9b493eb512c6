# SPDX-License-Identifier: MIT
"""Hunts for what breaks mpnet: python -m tests.fuzz.run MINUTES [TARGET...]; `make fuzz MINUTES=10 TARGET=bundle`.

Without a target the time is divided among all. Each ends in one line: inputs tried, failures, most memory, longest time of an
input, or of the next command after a kill. What fails is kept in .cache/fuzz/found and belongs to tests/fuzz/findings, which
`make test` replays.
"""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Callable, Iterator

from tests.fuzz import import_models
from tests.fuzz.build import ROOT, TARGETS, WORK, build, can_build, has_disk, inputs_of
from tests.fuzz.kills import SECTIONS
from tests.fuzz.readers import FORMATS

FINDINGS = WORK / "found"
CHANGE_COUNT = 20_000
"""Files that replay.c changes in one process."""
CHANGES = 200
"""Of the cache in one round."""
KILLS = 25
"""Of one round; few, so that a short hunt is short."""
SANITIZER = {"ASAN_OPTIONS": "detect_leaks=1:quarantine_size_mb=32"}


@dataclass
class Outcome:
    """What a hunt did. memory_mb: at most. slowest_s: CPU time of one input, at most; after kills seconds of the
    next command."""

    inputs: int = 0
    failures: int = 0
    memory_mb: float = 0.0
    slowest_s: float = 0.0
    skipped: str = ""

    def add(self, inputs: int, failures: int, memory_mb: float, slowest_s: float) -> None:
        self.inputs += inputs
        self.failures += failures
        self.memory_mb = max(self.memory_mb, memory_mb)
        self.slowest_s = max(self.slowest_s, slowest_s)


def _run_program(command: list[object], folder: Path = ROOT) -> tuple[int, str, float]:
    """Run a program. Result: exit code, what it printed on both streams, and its most memory in MB."""
    print(*command[:4], "...", file=sys.stderr, flush=True)
    log = WORK / "log"
    with open(log, "wb") as printed:
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=folder,
            stdout=printed,
            stderr=subprocess.STDOUT,
            env={**os.environ, **SANITIZER, "PYTHONPATH": str(ROOT)},
        )
        _, status, usage = os.wait4(process.pid, 0)
    return os.waitstatus_to_exitcode(status), log.read_text(encoding="utf-8", errors="replace"), usage.ru_maxrss * 1024 / 1e6


def _rounds(minutes: float) -> Iterator[int]:
    """Yield a random number again and again until the time is over, once at least."""
    deadline = time.monotonic() + 60 * minutes
    yield random.randrange(1 << 30)
    while time.monotonic() < deadline:
        yield random.randrange(1 << 30)


def workspace(folder: Path) -> Path:
    """Write the files that words of command_target.c name."""
    seeds = {path.name: path for path in inputs_of("bundle")}
    (folder / "images").mkdir(parents=True, exist_ok=True)
    shutil.copy(seeds["head-yolov5.mpnet"], folder / "net.mpnet")
    (folder / "damaged.mpnet").write_bytes(seeds["head-yolov5.mpnet"].read_bytes()[:-1] + b"\x55")
    for name, seed in {"image.jpg": "b.jpg", "image.ppm": "a.ppm", "images/a.jpg": "c.jpg", "images/b.ppm": "a.ppm"}.items():
        shutil.copy(seeds[seed], folder / name)
    (folder / "list.txt").write_text("7 image.jpg\nimages/b.ppm\n", encoding="utf-8")
    return folder


def _hunt_with_changes(target: str, kind: str, minutes: float) -> Outcome:
    """Run changed files through replay.c."""
    outcome = Outcome()
    program = WORK / f"{target}-{kind}"
    build(target, program, kind)
    folder = workspace(WORK / "command") if target == "command" else WORK / "changed"
    folder.mkdir(exist_ok=True)
    for seed in _rounds(minutes):
        (folder / "found").unlink(missing_ok=True)
        code, printed, memory = _run_program([program, "-m", CHANGE_COUNT, seed, *inputs_of(target)], folder)
        slowest = re.search(r"slowest (\d+) ms", printed)
        outcome.add(CHANGE_COUNT, code != 0, memory, float(slowest[1]) / 1e3 if slowest else 0.0)
        if code:
            print(printed[-3000:], file=sys.stderr, flush=True)
            shutil.copy(folder / "found", FINDINGS / f"{target}-{kind}-{seed}")
    return outcome


def _guided(target: str, minutes: float) -> Outcome:
    """Hunt by coverage, with libFuzzer."""
    compiler = os.environ.get("FUZZ_CC", "clang")
    if not can_build(compiler, "hunting"):
        return Outcome(skipped="no clang with libFuzzer here (Debian: clang and libclang-rt-dev)")
    program, corpus = WORK / f"{target}-hunting", WORK / f"corpus-{target}"
    build(target, program, "hunting", compiler)
    corpus.mkdir(exist_ok=True)
    options = [f"-max_total_time={round(60 * minutes)}", "-max_len=10240", "-rss_limit_mb=1024", "-timeout=60"]
    folder = workspace(WORK / "command") if target == "command" else WORK
    code, printed, memory = _run_program(
        [program, *options, "-print_final_stats=1", f"-artifact_prefix={FINDINGS}/", corpus, *_seed_folders(target)], folder
    )
    numbers = dict(re.findall(r"stat::(\w+):\s+(\d+)", printed))
    if code:
        print(printed[-3000:], file=sys.stderr, flush=True)
    outcome = Outcome()
    outcome.add(
        int(numbers.get("number_of_executed_units", 0)), code != 0, memory, float(numbers.get("slowest_unit_time_sec", 0))
    )
    return outcome


def _seed_folders(target: str) -> list[Path]:
    return sorted({path.parent for path in inputs_of(target)})


def _emulated(minutes: float) -> Outcome:
    """Run bundles by the tables of AVX-512, VNNI and AMX on an emulated CPU."""
    outcome, runs = Outcome(), 300
    program = WORK / "bundle-emulated"
    build("bundle", program, "emulated", inputs=inputs_of("bundle"), runs=runs)
    code, printed, memory = _run_program([ROOT / "tests/kernels/bochs/run.sh", program, max(600, round(60 * minutes))])
    if code == 2:
        return Outcome(skipped=printed.strip().splitlines()[-1])
    outcome.add(runs + len(inputs_of("bundle")), code != 0, memory, 0.0)
    if code:
        print(printed[-3000:], file=sys.stderr, flush=True)
    return outcome


def _reader(name: str, minutes: float) -> Outcome:
    line = r"(?P<inputs>\d+) runs from seed \d+, (?P<wrong>\d+) wrong in \d+ places, at most (?P<mb>\d+) MB, (?P<ms>\d+) ms"
    return _mutated(["tests.fuzz.readers", name, 300], ["--found", FINDINGS], line, minutes)


def _imports(kind: str, minutes: float) -> Outcome:
    """Import models changed by structure."""
    if not import_models.available(kind):
        return Outcome(skipped=f"no package that writes {kind} here: pip install '.[onnx,tflite]'")
    line = r"(?P<inputs>\d+) files from .* (?P<wrong>\d+) wrong in \d+ places, slowest (?P<s>[\d.]+) s, at most (?P<mb>\d+) MB"
    return _mutated(["tests.fuzz.import_models", kind, 300], ["--kept", FINDINGS], line, minutes)


def _graphs(minutes: float) -> Outcome:
    """Import random graphs and compare their heads with those of ONNX Runtime."""
    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxruntime")):
        return Outcome(skipped="no package that writes or runs these graphs here: pip install '.[onnx,onnxruntime]'")
    line = r"(?P<inputs>\d+) files from .* (?P<wrong>\d+) wrong in \d+ places, slowest (?P<s>[\d.]+) s, at most (?P<mb>\d+) MB"
    return _mutated(["tests.fuzz.import_graphs", 300], ["--kept", FINDINGS], line, minutes)


def _mutated(module: list[object], options: list[object], line: str, minutes: float) -> Outcome:
    """Run rounds of a module that takes a seed between these words, and prints a line of this form at its end."""
    outcome = Outcome()
    for seed in _rounds(minutes):
        _, printed, _ = _run_program([sys.executable, "-m", *module, seed, *options])
        match = re.search(line, printed)
        if match:
            counts = match.groupdict()
            slowest = float(counts["s"]) if "s" in counts else float(counts["ms"]) / 1e3
            outcome.add(int(counts["inputs"]), int(counts["wrong"]), float(counts["mb"]), slowest)
        else:
            outcome.add(0, 1, 0, 0)
        if not match or match["wrong"] != "0":
            print(printed[-3000:], file=sys.stderr, flush=True)
    return outcome


def _slowest(printed: str) -> float:
    """Return the seconds of what usage() printed."""
    return max(map(float, re.findall(r"at most \d+ MB and ([\d.]+) s", printed)), default=0.0)


def _faults(minutes: float) -> Outcome:
    """Let changes of files, readings and requests for memory fail, in everything that mpnet writes."""
    if not has_disk():
        return Outcome(skipped="what fails them is for Linux, and built by gcc")
    outcome = Outcome()
    for seed in _rounds(minutes):
        code, printed, memory = _run_program([sys.executable, "-m", "tests.fuzz.writers", 1, seed])
        outcome.add(sum(map(int, re.findall(r": (\d+) tries", printed))), code != 0, memory, _slowest(printed))
        if code:
            print(printed[-3000:], file=sys.stderr, flush=True)
    return outcome


def _cache(minutes: float) -> Outcome:
    """Change entries of the cache while processes use them."""
    outcome = Outcome()
    for seed in _rounds(minutes):
        code, printed, memory = _run_program([sys.executable, "-m", "tests.fuzz.cache", CHANGES, seed])
        outcome.add(CHANGES, code != 0, memory, _slowest(printed))
        if code:
            print(printed[-3000:], file=sys.stderr, flush=True)
    return outcome


def _kills(kind: str, minutes: float) -> Outcome:
    """Kill sweeps at any moment, and among many on one store."""
    if kind == "verify" and importlib.util.find_spec("onnxruntime") is None:
        return Outcome(skipped="it verifies in ONNX Runtime: pip install '.[onnxruntime]'")
    outcome = Outcome()
    for seed in _rounds(minutes):
        code, printed, memory = _run_program([sys.executable, "-m", "tests.fuzz.kills", KILLS, 5, seed, kind])
        outcome.add(KILLS, code != 0, memory, _slowest(printed))
        if code:
            print(printed[-3000:], file=sys.stderr, flush=True)
    return outcome


HUNTS: dict[str, Callable[[float], Outcome]] = {
    **{target: partial(_guided, target) for target in TARGETS},
    **{f"{target}-guarded": partial(_hunt_with_changes, target, "guarded") for target in TARGETS},
    "bundle-emulated": _emulated,
    **{name: partial(_reader, name) for name in FORMATS},
    **{f"import-{kind}": partial(_imports, kind) for kind in import_models.KINDS},
    "import-graphs": _graphs,
    "faults": _faults,
    "cache-shared": _cache,
    **{f"kills-{kind}": partial(_kills, kind) for kind in SECTIONS},
}
"""What can be hunted, and how, for so many minutes."""


def main(words: list[str]) -> int:
    minutes, names = float(words[0]), words[1:] or list(HUNTS)
    if unknown := [name for name in names if name not in HUNTS]:
        print(f"fuzz: unknown target '{unknown[0]}'; known: {', '.join(HUNTS)}", file=sys.stderr)
        return 2
    FINDINGS.mkdir(parents=True, exist_ok=True)
    has_failed = False
    for name in names:
        outcome = HUNTS[name](minutes / len(names))
        if outcome.skipped:
            print(f"{name}: SKIPPED: {outcome.skipped}", flush=True)
            continue
        print(
            f"{name}: {outcome.inputs} inputs, {outcome.failures} failures, at most {outcome.memory_mb:.0f} MB and "
            f"{outcome.slowest_s:.2f} s",
            flush=True,
        )
        has_failed |= outcome.failures > 0
    if has_failed:
        print(f"fuzz: something was found; its files are in {FINDINGS}, and belong to tests/fuzz/findings", file=sys.stderr)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
