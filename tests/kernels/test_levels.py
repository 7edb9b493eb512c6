# SPDX-License-Identifier: MIT
"""The runner of levels.c: what it is asked to run it runs, and the faults that it looks for it finds, case and level named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpnet.kernels import isa

pytestmark = pytest.mark.slow
CASE = "avgpool-F32-17"


@pytest.fixture(scope="module")
def levels(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """Return the runner, able to break a kernel of the best level."""
    if not (shutil.which("make") and shutil.which("gcc")):
        pytest.skip("SKIPPED: no make and gcc")
    if isa.usable_levels() == ("scalar",):
        pytest.skip("SKIPPED: this CPU has no level to compare with scalar")
    program = tmp_path_factory.mktemp("levels") / "levels"
    source = repository / "tests/kernels/levels.c"
    subprocess.run([sys.executable, repository / "tests/core.py", "-DBROKEN", source, program], check=True)
    return program


def run(levels: Path, *options: str, fault: str = "none") -> subprocess.CompletedProcess[str]:
    return subprocess.run([levels, *options], capture_output=True, text=True, check=False, env={**os.environ, "BROKEN": fault})


def test_cases_are_chosen_by_name_and_the_same_under_any_seed(levels: Path) -> None:
    level = isa.usable_levels()[0]
    listed = run(levels, "--list", f"--level={level}").stdout.splitlines()
    assert len(listed) == len(set(listed)) > 1000
    assert f"{level} {CASE}" in listed
    for seed in ("1", "77"):
        process = run(levels, f"--test={CASE}", f"--level={level}", f"--seed={seed}")
        assert (process.returncode, process.stdout) == (0, f"{level}: 1 of 1 comparisons with scalar equal\n")
    timed = run(levels, f"--bench={CASE}", f"--level={level}").stdout
    assert f"{level} {CASE}: " in timed
    assert " ns, scalar " in timed


def test_digests_are_of_what_the_reference_gives_whichever_level_is_compared(levels: Path) -> None:
    level = isa.usable_levels()[0]
    lines = {
        name: {
            line for line in run(levels, "--digest", "--test=-s2-", f"--level={name}").stdout.splitlines() if "digest " in line
        }
        for name in (level, "scalar")
    }
    assert {line.split(" ")[2] for line in lines[level]} >= {"results", "ranges"}
    assert lines[level] <= lines["scalar"]
    assert len({line.split(" ")[3] for line in lines[level]}) > 200
    broken = run(levels, "--digest", f"--test={CASE}", f"--level={level}", fault="result").stdout.splitlines()[0]
    assert broken in run(levels, "--digest", f"--test={CASE}", "--level=scalar").stdout.splitlines()


@pytest.mark.parametrize("option", ["--tset=add", "--seed=x", "add", "--test=nothing-of-this-name"])
def test_options_that_mean_nothing_are_errors(levels: Path, option: str) -> None:
    process = run(levels, option)
    assert process.returncode == 2
    assert process.stderr.startswith("levels: ")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("result", "results differ from those of scalar"),
        ("beyond", "wrote outside of its results"),
        ("before", "wrote outside of its results"),
        ("register", "changed a register that it must keep"),
        ("rounding", "the way of rounding"),
        ("address", "ended by signal 11"),
        ("instruction", "ended by signal"),
    ],
)
def test_faults_are_found_and_named(levels: Path, fault: str, words: str) -> None:
    process = run(levels, "--test=avgpool-F32", fault=fault)
    lines = [line for line in process.stdout.splitlines() if f" {CASE} (seed 1, threads 1): " in line]
    assert process.returncode == 1
    assert any(words in line for line in lines)
    assert {line.split(" ")[0] for line in lines} <= set(isa.usable_levels())
    assert process.stdout.splitlines()[-1].endswith(": 0 of 11 comparisons with scalar equal")
