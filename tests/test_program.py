# SPDX-License-Identifier: MIT
"""Commands that are printed to be copied begin with what starts mpnet there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mpnet.packages import program


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder whose .venv/bin/mpnet is that of the running interpreter; it is the current one."""
    binary = tmp_path / ".venv" / "bin"
    binary.mkdir(parents=True)
    (binary / "mpnet").write_text("#!/bin/sh\n")
    (binary / "mpnet").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(binary / "python"))
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_name_where_that_is_on_the_path(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(installed / ".venv" / "bin"))
    assert program() == "mpnet"


def test_else_where_it_lies_from_here(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert program() == ".venv/bin/mpnet"
    monkeypatch.chdir("/")
    assert program() == str((installed / ".venv" / "bin" / "mpnet").relative_to("/"))


def test_its_name_where_nothing_is_installed_beside_the_interpreter(installed: Path) -> None:
    (installed / ".venv" / "bin" / "mpnet").unlink()
    assert program() == "mpnet"
