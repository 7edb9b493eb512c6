# SPDX-License-Identifier: MIT
"""The package mixbench where mpnet is not installed: it runs methods and scores, and says what the rest needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Callable

import numpy as np
import pytest

from mixbench.__main__ import COMMANDS, main

Mixbench = Callable[..., "subprocess.CompletedProcess[str]"]

# A program of an interpreter that sees NumPy and the unpacked wheel, but neither this repository nor mpnet.
PROGRAM = """
import importlib.util, sys
sys.path[:0] = {paths}
assert importlib.util.find_spec("mpnet") is None
from mixbench.__main__ import main
sys.argv[0] = "mixbench"
status = main()
assert not any(name.partition(".")[0] in ("mpnet", "yaml", "cv2", "cffi") for name in sys.modules), sorted(sys.modules)
sys.exit(status)
"""


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel, built of a copy by the build backend itself: nothing is downloaded."""
    pytest.importorskip("setuptools", minversion="77", reason="SKIPPED WITHOUT SETUPTOOLS 77, which builds the wheel")
    folder = tmp_path_factory.mktemp("wheel")
    source = shutil.copytree(repository / "mixbench", folder / "source", ignore=shutil.ignore_patterns("__pycache__", "build"))
    build = f"from setuptools.build_meta import build_wheel; print(build_wheel({str(folder)!r}))"
    process = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def mixbench(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Mixbench:
    """Return what calls the installed command `mixbench` in an empty folder, without mpnet."""
    packages, folder = tmp_path_factory.mktemp("packages"), tmp_path_factory.mktemp("empty")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "numpy").symlink_to(Path(np.__file__).parent)
    for libraries in Path(np.__file__).parent.parent.glob("numpy.libs"):
        (packages / "numpy.libs").symlink_to(libraries)
    program = PROGRAM.format(paths=[str(packages)])

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        # -I: no PYTHONPATH, no folder of the program; -S: no site-packages.
        command = [sys.executable, "-I", "-S", "-c", program, *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    return call


@pytest.mark.slow
def test_the_wheel_runs_a_method_and_scores_it_without_mpnet(mixbench: Mixbench, repository: Path) -> None:
    run = mixbench("run", "--method", "hawq", "--method", "amp", "--problem", "demo", "-o", "answers")
    assert (run.returncode, run.stderr) == (0, "")
    score = mixbench("score", "answers/demo.hawq.0.json", "answers/demo.amp.0.json")
    assert (score.returncode, score.stderr) == (0, "")
    # The same figures as in the repository, where they stand in docs/results.
    lines = (repository / "docs/results/mixbench.csv").read_text(encoding="utf-8").splitlines()
    names = lines[0].split(",")
    published = {row[1]: dict(zip(names, row, strict=True)) for row in (line.split(",") for line in lines) if row[0] == "demo"}
    for row in score.stdout.splitlines()[1:]:
        _, method, passes, _, regret = row.split()[:5]
        assert passes == published[method]["passes"]
        assert regret == f"{float(published[method]['regret_mean']):.2f}"


@pytest.mark.slow
def test_what_needs_mpnet_says_so_in_one_line(mixbench: Mixbench) -> None:
    needs = "needs mpnet, which is not installed; pip install . in the root of its sources\n"
    assert mixbench("score", "--measure", "x.json").stderr == f"error: --measure: {needs}"
    strategy = mixbench("run", "--method", "mpnet-greedy", "--problem", "demo")
    assert (strategy.returncode, strategy.stderr) == (2, f"error: mpnet's strategy greedy: {needs}")
    assert mixbench("table", "check", "demo").stderr == f"error: mixbench table: {needs}"


def test_the_command_lists_its_parts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["mixbench"])
    assert main() == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == list(COMMANDS)
    monkeypatch.setattr(sys, "argv", ["mixbench", "nothing"])
    assert main() == 2
    assert capsys.readouterr().err.startswith("error: 'nothing' is no command; there are run, score")


@pytest.mark.slow
def test_the_wheel_holds_tables_and_problems_and_no_requirement_but_numpy(wheel: Path, repository: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    folder = repository / "mixbench"
    expected = [*folder.glob("*.py"), *folder.glob("methods/*.py"), *folder.glob("tables/*"), *folder.glob("problems/*.yaml")]
    assert {f"mixbench/{path.relative_to(folder).as_posix()}" for path in expected} <= names
    assert [line for line in metadata.splitlines() if line.startswith("Requires-Dist")] == ["Requires-Dist: numpy>=1.23"]
    assert (folder / "LICENSE").read_bytes() == (repository / "LICENSE").read_bytes()
