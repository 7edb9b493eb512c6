# SPDX-License-Identifier: MIT
"""docs/board.md, command by command, with an emulated Cortex-A57 for the board. `make test-arm` runs it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import pytest

from tests.networks import write_experiment

EMULATOR = "qemu-aarch64-static -cpu cortex-a57"


def commands(page: str) -> list[str]:
    """Return the commands of the page, in order; comments and prose left out. The part on Python is for other boards."""
    page = page.split("## Python on the board")[0]
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", page, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def run(command: str, folder: Path, repository: Path, statuses: tuple[int, ...] = (0,)) -> str:
    """Return what a shell command prints; it must end with one of these exit statuses."""
    command = re.sub(r"^mpnet\b", shlex.join([sys.executable, "-m", "mpnet"]), command)
    completed = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(repository)},
    )
    assert completed.returncode in statuses, f"{command}\n{completed.stdout}{completed.stderr}"
    return completed.stdout


def prepared(work: Path, board: Path) -> None:
    """Write a network with an experiment and images as JPEGs, which the board has as well."""
    (board / "images").mkdir(parents=True)
    work.mkdir()
    experiment = write_experiment(work)
    sweep = "sweep: {strategy: one_at_a_time, precisions: [fp32, int8]}\n"
    experiment.write_text(experiment.read_text(encoding="utf-8") + sweep, encoding="utf-8")
    for png in sorted((work / "images").glob("*.png")):
        image = cv2.imread(str(png))
        png.unlink()
        cv2.imwrite(str(png.with_suffix(".jpg")), image)
        shutil.copy(png.with_suffix(".jpg"), board / "images")
    shutil.copy(board / "images" / "scene-0.jpg", board / "street.jpg")


@pytest.mark.skipif("MPNET_ARM" not in os.environ, reason="make test-arm runs it")
def test_every_command_of_the_page(repository: Path, tmp_path: Path) -> None:
    work, board = tmp_path / "work", tmp_path / "board"
    prepared(work, board)
    prompts = []
    for line in commands((repository / "docs" / "board.md").read_text(encoding="utf-8")):
        if " --on " in line:  # tests/deploy/test_board.py
            continue
        prompts.append(line.split()[0])
        is_build = line.startswith("make") or "build/" in line
        folder = board if line.startswith("board$ ") else repository if is_build else work
        command = line.removeprefix("board$ ").replace("./mprun", f"{EMULATOR} ./mprun")
        command = re.sub(r"^scp board:(\S+)", rf"cp {board}/\1", command)
        command = re.sub(r"^scp (\S+) board:$", rf"cp \1 {board}/", command)
        # Times of an emulated CPU mean nothing, so their sums may be off by anything, which --profile says by 1.
        run(
            command.replace("sweep.latency=board.json", "sweep.latency=board.json --set sweep.latency_error=100000"),
            folder,
            repository,
            (0, 1) if "--profile" in command else (0,),
        )
    assert prompts.count("board$") == 6
    assert {"make", "scp", "mpnet"} <= set(prompts)
    assert json.loads((board / "board.json").read_text(encoding="utf-8"))["machine"]["isa"] == "neon"
    # What the board found is what the workstation finds.
    run("mpnet export street.sqlite:chosen --to cfg -o chosen.cfg", work, repository)
    ours = run("mpnet run experiment.yaml --set model.cfg=chosen.cfg --set precision={} --json", work, repository)
    assert (work / json.loads(ours)["folder"] / "detections.json").read_bytes() == (board / "detections.json").read_bytes()
