# SPDX-License-Identifier: MIT
"""Power cuts, and faults of disk and memory: in a process of its own, which has disk.c between it and the disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.build import has_disk


@pytest.mark.parametrize(
    "words",
    [["disk", "1"], pytest.param(["writers", "1", "5", "run", "init", "export-bundle"], marks=pytest.mark.slow)],
    ids=["power cuts", "faults"],
)
@pytest.mark.skipif(not has_disk(), reason="SKIPPED: the shim is for Linux, and built by gcc")
def test_the_disk(words: list[str], repository: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", f"tests.fuzz.{words[0]}", *words[1:]],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(repository)},
    )
    assert process.returncode == 0, process.stdout + process.stderr[-3000:]
