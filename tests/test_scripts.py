# SPDX-License-Identifier: MIT
"""Programs of tools/, benchmarks/, mixbench/ and experiments/ name what is there: they run seldom, and what they need moves.

The Makefile says what it does before what takes long.
"""

from __future__ import annotations

import ast
import importlib
import shutil
import subprocess
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
