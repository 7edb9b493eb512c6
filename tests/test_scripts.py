# SPDX-License-Identifier: MIT
"""Programs of tools/, benchmarks/, mixbench/ and experiments/ name what is there: they run seldom, and what they need moves.

The Makefile says what it does before what takes long.
"""

from __future__ import annotations

import ast
import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

FOLDERS = ("tools", "benchmarks", "mixbench", "experiments")
PROGRAMS = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_program_imports_of_mpnet_is_there(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "mpnet":
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")


@pytest.mark.skipif(shutil.which("make") is None, reason="SKIPPED WITHOUT MAKE")
def test_make_demo_of_a_fresh_clone_says_what_it_builds_and_how_long_that_takes(tmp_path: Path) -> None:
    lines = subprocess.run(
        ["make", "-n", "demo", f"VENV={tmp_path / 'venv'}"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.splitlines()
    said = 0
    for line in lines:
        said += line.startswith('echo "mpnet: ')
        if " pip install " in line or "-m venv" in line or line.endswith("mpnet demo"):
            assert said, f"nothing says what this does: {line}"
    assert said == 3
    assert any("compiling the C core" in line and "minute" in line for line in lines)


def test_the_tables_of_modelled_milliseconds_are_what_their_counts_give() -> None:
    """`python benchmarks/arm_model.py table` writes them; no cell of a time lacks the word."""
    printed = subprocess.run(
        [sys.executable, "benchmarks/arm_model.py", "table"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    page = (ROOT / "docs/results/arm-model.md").read_text(encoding="utf-8")
    tables = printed.strip().split("\n\n")
    assert len(tables) == 2
    for table in tables:
        assert table in page
    for line in tables[0].splitlines()[2:]:
        assert all(cell.strip().endswith(("modelled", "no such instructions")) for cell in line.strip("|").split("|")[2:])
