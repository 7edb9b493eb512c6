# SPDX-License-Identifier: MIT
"""A board on loopback, and programs that stand in for mprun there."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest

from tests.deploy.sshd import Loopback, loopback


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Loopback]:
    """Start a board on loopback."""
    (tmp_path / "board").mkdir()
    with loopback(tmp_path / "board") as started:
        yield started


def write_stand_in(folder: Path, script: str) -> Path:
    """Write a program that stands in for mprun; it runs in its folder on the board."""
    program = folder / "stand-in"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    return program
