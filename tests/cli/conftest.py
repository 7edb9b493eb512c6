# SPDX-License-Identifier: MIT
"""Two ways to call the command line: in this process, and as the program that users start."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from mpnet.cli.main import main
from tests.networks import write_experiment

Mpnet = Callable[..., subprocess.CompletedProcess[str]]

NEGATIVE_ZERO = re.compile(r"(?<![\w.-])[-−]0(\.0+)?(?![\w]|\.\d)")
"""What no command prints: -0, -0.00."""


@pytest.fixture
def mpnet(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Mpnet:
    """Call `mpnet ARGUMENTS...` in a folder (a fresh one by default) and return what it printed.

    In this process: there are many calls, and a new interpreter takes longer than most of them.
    """

    def call(*arguments: object, cwd: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        command = ["mpnet", *map(str, arguments)]
        capfd.readouterr()
        handler = signal.getsignal(signal.SIGTERM)
        with monkeypatch.context() as patch:
            patch.chdir(cwd)
            patch.setattr(sys, "argv", command)
            with pytest.raises(SystemExit) as exit_info:
                main(command[1:])
        signal.signal(signal.SIGTERM, handler)
        output, errors = capfd.readouterr()
        if "--json" not in command:
            lines = [line for line in (output + errors).splitlines() if NEGATIVE_ZERO.search(line)]
            assert not lines, f"{command} prints a negative zero: {lines}"
        return subprocess.CompletedProcess(command, int(exit_info.value.code or 0), output, errors)

    return call


def run_program(cwd: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Call `mpnet ARGUMENTS...` as a process of its own; what fixtures of a whole module use, which have no `mpnet`."""
    command = [sys.executable, "-m", "mpnet", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, timeout=120)


@pytest.fixture
def mpnet_program(tmp_path: Path) -> Mpnet:
    """Run commands as processes of their own, for what depends on that: their streams, their libraries' settings."""
    return lambda *arguments, cwd=tmp_path: run_program(cwd, *arguments)


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """Write the tiny network with images and labels; return the path of its experiment.yaml."""
    return write_experiment(tmp_path)


def document_of(process: subprocess.CompletedProcess[str]) -> Any:
    """Return the JSON document that a successful command printed, and nothing else."""
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)
