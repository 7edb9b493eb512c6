# SPDX-License-Identifier: MIT
"""Each change of the disk refused, and power cuts: in a process of its own, which has disk.c between it and the disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def preload(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not sys.platform.startswith("linux") or shutil.which("gcc") is None:
        pytest.skip("SKIPPED: the shim is for Linux, and built by gcc")
    library = tmp_path_factory.mktemp("disk") / "disk.so"
    subprocess.run(
        ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "tests/fuzz/disk.c", "-o", str(library), "-ldl"],
        check=True,
        cwd=repository,
    )
    return library


@pytest.mark.parametrize(("task", "step"), [("cut", 1), pytest.param("refuse", 37, marks=pytest.mark.slow)])
def test_the_disk(preload: Path, task: str, step: int, repository: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.disk", task, str(step)],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LD_PRELOAD": str(preload), "PYTHONPATH": str(repository)},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
