# SPDX-License-Identifier: MIT
"""Every command that the README shows runs, in its order; every link leads somewhere."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


def commands(text: str) -> list[list[str]]:
    """The lines that begin with `$ ` in ```console blocks, as arguments."""
    lines = [line for block in BLOCK.findall(text) for line in block.splitlines()]
    return [shlex.split(line[2:]) for line in lines if line.startswith("$ ")]


@pytest.mark.slow
def test_a_new_users_session(repository: Path, tmp_path: Path) -> None:
    """Demo, own data, two strategies, holdout, report, export: all commands, in a folder that holds nothing else."""
    shown = commands((repository / "README.md").read_text(encoding="utf-8"))
    assert len(shown) >= 10
    environment = {**os.environ, "NO_COLOR": "1"}
    (tmp_path / "cfg").symlink_to(repository / "cfg")
    # Copies, not a link: `..` in their paths would lead from a link into the repository.
    (tmp_path / "experiments").mkdir()
    for file in (repository / "experiments").glob("*.yaml"):
        (tmp_path / "experiments" / file.name).write_bytes(file.read_bytes())
    said: dict[tuple[str, ...], str] = {}
    for command in shown:
        assert command[0] == "mpnet"
        result = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert result.returncode == 0, f"{shlex.join(command)}\n{result.stderr}"
        rules = [len(line) for line in result.stdout.splitlines() if line and set(line) == {"─"}]
        assert max(rules, default=0) <= 100, shlex.join(command)
        said[tuple(command[1:3])] = result.stdout
    assert (tmp_path / "runs" / "demo" / "report.html").stat().st_size > 100_000
    assert (tmp_path / "street.html").stat().st_size > 100_000
    # What the README shows of the demo's end and of `init` is what they say.
    text = (repository / "README.md").read_text(encoding="utf-8")
    assert "The best configuration found is int8, but fp16 in heads (qqqqqqqqqhqqh)." in text
    assert "The best configuration found is int8, but fp16 in heads (qqqqqqqqqhqqh)." in said["demo", "--quick"]
    assert said["init", "--cfg"] in text
    # Two strategies and a holdout of its own are two sweeps of one store; `safe` is of the latest.
    assert sum(line.startswith("runs/street/sweep-") for line in said["list",].splitlines()) == 2
    assert {"greedy", "additive"} <= set(said["list",].split())
    section = said["export", "runs/street:balanced"]
    assert section.startswith("precision:  # ")
    shown_cfg = subprocess.run(
        [sys.executable, "-m", "mpnet", "show", "street-balanced.cfg", "--json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(shown_cfg.stdout)["precision_key"] == section.splitlines()[0].removeprefix("precision:  # ")
    assert (tmp_path / "found" / "00005.png").is_file()
