"""A finished pair of runs of the tiny network, and a way to call the command line as a user does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from tests.networks import write_experiment

Mpnet = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def mpnet(tmp_path: Path) -> Mpnet:
    """Call `mpnet ARGUMENTS...` in a folder (a fresh one by default) and return what it printed."""

    def call(*arguments: object, cwd: Path = tmp_path, **settings: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "mpnet", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, timeout=120, **settings)

    return call


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """The tiny network with pictures and labels; the path of its experiment.yaml."""
    return write_experiment(tmp_path)


def document_of(process: subprocess.CompletedProcess[str]) -> Any:
    """The JSON document that a successful command printed, and nothing else."""
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)
