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
    """The commands of the page, in order; comments and prose left out. The part on Python is for other boards."""
    page = page.split("## Python on the board")[0]
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", page, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


@pytest.mark.skipif("MPNET_ARM" not in os.environ, reason="make test-arm runs it")
def test_every_command_of_the_page(repository: Path, tmp_path: Path) -> None:
    work, board = tmp_path / "work", tmp_path / "board"
    (board / "pictures").mkdir(parents=True)
    work.mkdir()
    experiment = write_experiment(work)
    text = experiment.read_text(encoding="utf-8").replace("name: tiny", "name: street")
    experiment.write_text(text + "sweep: {strategy: one_at_a_time, precisions: [fp32, int8]}\n", encoding="utf-8")
    for png in sorted((work / "images").glob("*.png")):
        picture = cv2.imread(str(png))
        png.unlink()
        cv2.imwrite(str(png.with_suffix(".jpg")), picture)
        shutil.copy(png.with_suffix(".jpg"), board / "pictures")
    shutil.copy(board / "pictures" / "scene-0.jpg", board / "street.jpg")
    mpnet = shlex.join([sys.executable, "-m", "mpnet"])
    seen = []
    for line in commands((repository / "docs" / "board.md").read_text(encoding="utf-8")):
        seen.append(line.split()[0])
        folder, command = (board, line.removeprefix("board$ ")) if line.startswith("board$ ") else (work, line)
        if command.startswith("make"):
            folder = repository
        command = re.sub(r"^scp board:(\S+) \.$", rf"cp {board}/\1 .", command)
        command = re.sub(
            r"^scp (\S+) board:$", lambda m: f"cp {repository if 'build/' in m[1] else '.'}/{m[1]} {board}/", command)
        command = re.sub(r"^\./mprun", f"{EMULATOR} ./mprun", re.sub(r"^mpnet\b", mpnet, command))
        done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONPATH": str(repository)})
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    assert seen.count("board$") == 6
    assert {"make", "scp", "mpnet"} <= set(seen)
    table = json.loads((work / "board.json").read_text(encoding="utf-8"))
    assert table["machine"]["isa"] == "neon"
    # What the board found is what the workstation finds.
    mpnet = [sys.executable, "-m", "mpnet"]
    ours = subprocess.run([*mpnet, "export", "runs/street/sweep.sqlite:chosen", "--to", "cfg", "-o", "c.cfg"],
                          cwd=work, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(repository)})
    assert ours.returncode == 0
    run = subprocess.run([*mpnet, "run", "experiment.yaml", "--set", "model.cfg=c.cfg", "--json", "--set",
                          "precision={}"], cwd=work, check=True, capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": str(repository)})
    found = Path(work, json.loads(run.stdout)["folder"]) / "detections.json"
    assert found.read_bytes() == (board / "detections.json").read_bytes()
