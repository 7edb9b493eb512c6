# SPDX-License-Identifier: MIT
"""The C entries that read files, over the fuzzers' seeds and everything that fuzzing has found; see docs/reliability.md."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.fuzz.build import TARGETS, build, can_build

HERE = Path(__file__).resolve().parent
COMPILERS = ("gcc", "clang")
RUNS = 3_000
ENVIRONMENT = {**os.environ, "ASAN_OPTIONS": "detect_leaks=1:quarantine_size_mb=32", "LSAN_OPTIONS": "report_objects=1"}


def inputs(target: str) -> list[Path]:
    return [path for folder in ("corpus", "findings") for path in sorted((HERE / folder / target).glob("*"))]


# Of bundles with the whole core, whose scalar kernels alone take half a minute to compile.
@pytest.mark.parametrize("target", [pytest.param(target, marks=[pytest.mark.slow] * (target != "jpeg")) for target in TARGETS])
def test_seeds_and_findings_are_replayed(target: str, tmp_path: Path) -> None:
    compiler = next((name for name in COMPILERS if can_build(name, replay=True)), None)
    if compiler is None:
        pytest.skip("SKIPPED: no compiler with address and undefined-behaviour sanitizers")
    build(target, tmp_path / target, compiler, replay=True)
    done = subprocess.run([tmp_path / target, *inputs(target)], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("\n") == len(inputs(target)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_short_hunt_finds_nothing(target: str, tmp_path: Path) -> None:
    if not can_build("clang", replay=False):
        pytest.skip("SKIPPED: no clang with libFuzzer (Debian: clang and libclang-rt-dev)")
    build(target, tmp_path / target, "clang", replay=False)
    (tmp_path / "found").mkdir()
    # libFuzzer looks at the largest memory that its process ever had, which on Linux begins with this one's; a shell's child
    # begins anew.
    done = subprocess.run(
        [
            "sh",
            "-c",
            '"$@"; exit $?',
            "sh",
            tmp_path / target,
            f"-runs={RUNS}",
            "-seed=1",
            "-max_len=10240",
            "-rss_limit_mb=512",
            "-timeout=10",
            tmp_path / "found",
            HERE / "corpus" / target,
        ],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
