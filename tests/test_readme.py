# SPDX-License-Identifier: MIT
"""Every command of the README and of the guide for a first network runs, in its order, and prints what the page shows."""

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
SESSION = ("README.md", "docs/first-network.md")
"""Pages that lead a new user through commands, one page after the other in one folder."""


def commands(text: str) -> list[tuple[list[str], list[str]]]:
    """Return the commands of a page's ```console blocks, as arguments, each with the lines that the page shows of its
    output."""
    sessions: list[tuple[list[str], list[str]]] = []
    for line in (line for block in BLOCK.findall(text) for line in block.splitlines()):
        if line.startswith("$ "):
            sessions.append((shlex.split(line[2:]), []))
        elif line != "...":
            sessions[-1][1].append(" ".join(line.removesuffix(" ...").split()))
    return sessions


@pytest.mark.slow
def test_a_new_users_session(repository: Path, tmp_path: Path) -> None:
    """The README and then the guide: all commands, in a folder that holds nothing else, print what the pages show of them."""
    environment = {**os.environ, "NO_COLOR": "1"}
    (tmp_path / "cfg").symlink_to(repository / "cfg")
    # Copies, not a link: `..` in their paths would lead from a link into the repository.
    (tmp_path / "experiments").mkdir()
    for file in (repository / "experiments").glob("*.yaml"):
        (tmp_path / "experiments" / file.name).write_bytes(file.read_bytes())
    outputs: dict[tuple[str, ...], str] = {}
    for page in SESSION:
        page_commands = commands((repository / page).read_text(encoding="utf-8"))
        assert len(page_commands) >= 6
        for command, expected in page_commands:
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
            assert result.returncode == 0, f"{page}: {shlex.join(command)}\n{result.stderr}"
            rules = [len(line) for line in result.stdout.splitlines() if line and set(line) == {"─"}]
            assert max(rules, default=0) <= 100, shlex.join(command)
            # Columns grow with what a busy machine says of times.
            printed = [" ".join(line.split()) for line in result.stdout.splitlines()]
            assert [line for line in expected if not any(printed_line.startswith(line) for printed_line in printed)] == [], page
            outputs[tuple(command[1:3])] = result.stdout
    assert (tmp_path / "runs" / "demo" / "report.html").stat().st_size > 100_000
    assert (tmp_path / "mine.html").stat().st_size > 100_000
    assert (tmp_path / "street.html").stat().st_size > 100_000
    # What the README shows of the demo's end is what it says.
    text = (repository / "README.md").read_text(encoding="utf-8")
    assert "Recommended is int8 everywhere (qqqqqqqqqqqqq): best found, not shown: " in text
    assert "Recommended is int8 everywhere (qqqqqqqqqqqqq): best found, not shown: " in outputs["demo", "--quick"]
    # Two strategies and a holdout of its own are two sweeps of one store; picks are of the latest.
    assert sum(line.startswith("runs/street/sweep-") for line in outputs["list",].splitlines()) == 2
    assert {"greedy", "auto"} <= set(outputs["list",].split())
    section = outputs["export", "runs/street:recommended"]
    assert section.startswith("precision:  # ")
    shown_cfg = subprocess.run(
        [sys.executable, "-m", "mpnet", "show", "street-mixed.cfg", "--json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(shown_cfg.stdout)["precision_key"] == section.splitlines()[0].removeprefix("precision:  # ")
    assert (tmp_path / "found" / "00005.png").is_file()
