# SPDX-License-Identifier: MIT
"""Ctrl-C at random moments of every command: one line, exit code 130, nothing half."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mpnet.cli.main import COMMANDS as COMMANDS_OF_USERS
from tests.fuzz.interrupts import COMMANDS


def test_every_command_that_takes_time_is_interrupted() -> None:
    assert {words[0] for words in COMMANDS.values()} == set(COMMANDS_OF_USERS) - {"info", "completion", "tune"}


@pytest.mark.slow
def test_commands_end_in_one_line(repository: Path) -> None:
    # Those that are left out take tens of seconds, or write as others do.
    left_out = {"demo", "profile", "sweep", "graph-json", "trials", *(name for name in COMMANDS if name.startswith("export-"))}
    names = [name for name in COMMANDS if name not in left_out - {"export-onnx"}]
    process = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.interrupts", "2", "5", *names],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
