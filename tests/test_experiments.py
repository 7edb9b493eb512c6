"""Every example in experiments/ is a valid experiment, and those of the demo run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mpnet.demo.project import write_project
from mpnet.formats.experiment_yaml import read_experiment

FILES = sorted((Path(__file__).resolve().parent.parent / "experiments").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_example_is_valid(path: Path) -> None:
    experiment = read_experiment(path)
    assert experiment.name == path.stem
    assert experiment.data is not None


@pytest.mark.slow
@pytest.mark.parametrize("command", [["run", "demo.yaml"], ["run", "demo-calibrated.yaml"], ["sweep", "demo-greedy.yaml"]])
def test_examples_of_the_demo_run(command: list[str], repository: Path, tmp_path: Path) -> None:
    write_project(tmp_path / "runs" / "demo", scenes=8)
    (tmp_path / "experiments").mkdir()
    example = tmp_path / "experiments" / command[1]
    example.write_bytes((repository / "experiments" / command[1]).read_bytes())
    arguments = [command[0], str(example), "--json", "--quiet", "--set", "data.calibration.count=4"]
    result = subprocess.run(
        [sys.executable, "-m", "mpnet", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600
    )
    assert result.returncode == 0, result.stderr
    assert isinstance(json.loads(result.stdout), dict)
