# SPDX-License-Identifier: MIT
"""The steps of the GitHub Action, run by bash as a runner does, beside the installation of mpnet that the tests have."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.networks import EXPERIMENT, small_cfg, write_experiment

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="SKIPPED WITHOUT BASH")


@pytest.fixture
def action(repository: Path) -> Any:
    return yaml.safe_load((repository / "tools" / "action" / "action.yml").read_text(encoding="utf-8"))


@pytest.fixture
def workplace(tmp_path: Path, repository: Path) -> Path:
    """Return a checkout with a small network, and `mpnet` as a command in bin/."""
    write_experiment(tmp_path, small_cfg())
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT.replace("default: int8", "default: fp16"), encoding="utf-8")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "mpnet"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{repository}" exec "{sys.executable}" -m mpnet "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return tmp_path


def run_steps(action: Any, folder: Path, **inputs: str) -> tuple[int, dict[str, str], str]:
    """Run all steps but the installation, as a runner does; return the exit code, the outputs and the summary."""
    values = {name: row.get("default", "") for name, row in action["inputs"].items()} | inputs
    output, summary = folder / "output", folder / "summary"
    for file in (output, summary):
        file.write_text("", encoding="utf-8")
    code = 0
    for step in action["runs"]["steps"]:
        condition = step.get("if", "")
        if step["name"] == "Install mpnet" or (condition and values["doctor"] != "true"):
            continue
        environment = {
            name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda m: values[m[1]], text) for name, text in step["env"].items()
        }
        environment |= {
            "PATH": f"{folder / 'bin'}:/usr/bin:/bin",
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(summary),
            "RUNNER_TEMP": str(folder),
            "MPNET_CACHE": str(folder / "cache"),
        }
        # As GitHub starts `shell: bash`.
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        code = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, check=False, timeout=120).returncode
        if code:
            break
    outputs = dict(line.split("=", 1) for line in output.read_text(encoding="utf-8").splitlines())
    return code, outputs, summary.read_text(encoding="utf-8")


def test_no_input_becomes_part_of_a_script(action: Any) -> None:
    """What a user writes reaches a step as a variable, so that it cannot be read as a command."""
    for step in action["runs"]["steps"]:
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"
    assert set(action["outputs"]) == {"shown", "result"}


def test_the_page_uses_the_action_as_it_is(action: Any, repository: Path) -> None:
    [block] = re.findall(r"```yml\n(.*?)```", (repository / "docs" / "ci.md").read_text(encoding="utf-8"), re.DOTALL)
    step = yaml.safe_load(block)["jobs"]["budget"]["steps"][-1]
    assert step["uses"].partition("/mpnet/")[2] == "tools/action@main"
    assert set(step["with"]) <= set(action["inputs"])


@pytest.mark.slow
def test_a_budget_that_is_shown_passes(action: Any, workplace: Path) -> None:
    code, outputs, summary = run_steps(action, workplace, experiment="experiment.yaml", budget="100 agreement")
    assert (code, outputs["shown"]) == (0, "true")
    assert json.loads(Path(outputs["result"]).read_text(encoding="utf-8"))["shown_budget"]["shown"] is True
    assert "0 findings" in summary
    assert "is shown to be kept: 100 agreement" in summary


@pytest.mark.slow
def test_a_budget_that_is_not_shown_fails_with_4(action: Any, workplace: Path) -> None:
    inputs = {"experiment": "experiment.yaml", "budget": "0.001 agreement", "precision": "int8", "doctor": "false"}
    code, outputs, summary = run_steps(action, workplace, **inputs)
    assert (code, outputs["shown"]) == (4, "false")
    document = json.loads(Path(outputs["result"]).read_text(encoding="utf-8"))
    assert document["precision"]["key"] == "qqqq"
    assert "not shown to be kept any more" in summary


@pytest.mark.slow
def test_a_finding_of_the_doctor_and_hostile_names_fail(action: Any, workplace: Path) -> None:
    (workplace / "net.names").write_text("one\n", encoding="utf-8")
    code, outputs, summary = run_steps(action, workplace, experiment="experiment.yaml")
    assert (code, outputs) == (1, {})
    assert "labels do not fit" in summary
    for name in ("$(touch pwned).yaml", "--salvage", "a b'\".yaml; touch pwned"):
        assert run_steps(action, workplace, experiment=name, doctor="false")[0] == 2
    assert not (workplace / "pwned").exists()
