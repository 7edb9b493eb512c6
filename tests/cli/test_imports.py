# SPDX-License-Identifier: MIT
"""A command imports what it uses and nothing else: start-up is most of the time of looking at one image."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

# Slow to import; who needs one asks for it when it is needed.
HEAVY = (
    "cv2",
    "dask",
    "distributed",
    "jinja2",
    "optuna",
    "pycocotools",
    "rich",
    "yaml",
    "multiprocessing",
    "importlib.metadata",
    "mpnet.report",
    "mpnet.sweep",
    "mpnet.evaluation",
    "mpnet.speed",
    "mpnet.demo",
    "mpnet.config.experiment",
    "mpnet.data.dataset",
    "mpnet.quantization.tensorflow",
    "mpnet.kernels.reference",
)
PROGRAM = """
import json, sys
from mpnet.cli.main import main
try:
    main(sys.argv[2:])
except SystemExit as left:
    assert not left.code, left.code
    imported = [name for name in sys.argv[1].split() if name in sys.modules]
    print("imported:", *imported)
"""
MODEL = ("--cfg", "net.cfg", "--weights", "net.weights")


def imported_by(folder: Path, *arguments: str) -> set[str]:
    """Return the heavy modules that a command imports."""
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, " ".join(HEAVY), *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    [*_, last_line] = process.stdout.splitlines()
    assert last_line.startswith("imported:")
    return set(last_line.split()[1:])


@pytest.fixture
def folder(experiment: Path) -> Path:
    image = np.random.default_rng(1).integers(0, 255, (40, 60, 3), np.uint8)
    assert cv2.imwrite(str(experiment.parent / "street.jpg"), image)
    return experiment.parent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "packages"),
    [
        ("--help", ()),
        ("detect --help", ()),
        ("info", ("rich", "importlib.metadata")),
        ("detect {model} street.jpg", ()),
        ("detect {model} street.jpg --json", ()),
        ("detect {model} images/scene-0.png", ("cv2",)),
        ("show net.cfg", ("rich", "mpnet.report", "mpnet.config.experiment")),
        (
            "run experiment.yaml -q",
            (
                "rich",
                "yaml",
                "importlib.metadata",
                "mpnet.report",
                "mpnet.evaluation",
                "mpnet.speed",
                "mpnet.config.experiment",
                "mpnet.data.dataset",
                "cv2",
            ),
        ),
    ],
)
def test_nothing_is_imported_that_a_command_does_not_use(folder: Path, arguments: str, packages: tuple[str, ...]) -> None:
    words = arguments.replace("{model}", " ".join(MODEL)).split()
    assert imported_by(folder, *words) <= set(packages)


def test_the_api_imports_what_is_asked_for() -> None:
    program = (
        "import sys, mpnet.api as api; assert 'numpy' not in sys.modules; api.load_network; "
        "assert 'yaml' not in sys.modules; assert set(dir(api)) == set(api.__all__); "
        "[getattr(api, name) for name in api.__all__]"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False).stderr == ""


SLIM = """
import sys
sys.modules.update(dict.fromkeys(["jinja2", "markupsafe", "pycocotools"]))  # as if they were not installed
from mpnet.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_an_installation_without_what_pages_need(folder: Path) -> None:
    """detect, run and profile work, and `report` says in one line what to install."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", SLIM, *arguments], cwd=folder, capture_output=True, text=True, check=False)

    assert call("detect", *MODEL, "street.jpg").returncode == 0
    assert call("run", "experiment.yaml", "-q").returncode == 0
    assert call("profile", "net.cfg", "-q", "-o", "table.json").returncode in (0, 1)  # 1: too busy for steady times
    result = next(folder.rglob("result.json")).parent
    refused = call("report", str(result), "-o", "page.html")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr in (
        "error: this needs jinja2, which is not installed; pip install 'mpnet[report]'\n",
        "error: this needs markupsafe, which is not installed; pip install 'mpnet[report]'\n",
    )
