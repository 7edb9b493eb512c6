# SPDX-License-Identifier: MIT
"""Completion in shells: the script that they load, and the answers that it asks for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.cli.conftest import Mpnet


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_ask_mpnet(mpnet: Mpnet, shell: str) -> None:
    script = mpnet("completion", shell)
    assert script.returncode == 0, script.stderr
    assert f"_MPNET_COMPLETE={shell}_complete" in script.stdout
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=script.stdout, text=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"), [("mpnet sw", "sweep"), ("mpnet sweep --sal", "--salvage"), ("mpnet show --j", "--json")]
)
def test_commands_and_options_are_completed(words: str, expected: str) -> None:
    request = {"_MPNET_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    answer = subprocess.run(
        [sys.executable, "-m", "mpnet"], env={**os.environ, **request}, capture_output=True, text=True, check=False
    )
    assert answer.stderr == ""
    assert f"plain,{expected}" in answer.stdout.splitlines()
