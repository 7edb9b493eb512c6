# SPDX-License-Identifier: MIT
"""mprun as users build it, and bundles of the packaged detector."""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import cv2
import pytest

from mpnet.cli.main import main
from mpnet.demo.model import model_files
from mpnet.demo.scenes import scene
from tests.core import core
from tests.networks import write_experiment

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Program:
    """path: of mprun. library: of libmprun.a."""

    path: Path
    library: Path

    def __call__(self, *words: object, check: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run it; its exit code must be `check`."""
        completed = subprocess.run(
            [str(self.path), *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env=environment or None,
        )
        assert completed.returncode == check, completed.stderr
        return completed

    def compile(self, source: Path, program: Path) -> None:
        """Compile a C program over the library."""
        subprocess.run(
            [
                "gcc",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Icsrc/mprun",
                str(source),
                str(self.library),
                "-lm",
                "-pthread",
                "-o",
                str(program),
            ],
            check=True,
            cwd=REPOSITORY,
        )


def mpnet(*words: object, code: int = 0) -> str:
    """Return what `mpnet WORDS...` prints, in this process; on standard error when it fails as expected."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as exit_info:
        main([str(word) for word in words])
    assert exit_info.value.code == code, err.getvalue()
    return err.getvalue() if code else out.getvalue()


@pytest.fixture(scope="session")
def mprun() -> Program:
    """Return the program built by `make mprun`, once for all processes that test."""
    if not (shutil.which("make") and shutil.which("gcc")):
        pytest.skip("SKIPPED: mprun is built by make and gcc, and one is missing")
    folder = core(["gcc"], [], "mprun")
    return Program(folder / "mprun", folder / "libmprun.a")


@pytest.fixture(scope="session")
def heads(mprun: Program, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile heads.c over the library."""
    program = tmp_path_factory.mktemp("heads") / "heads"
    mprun.compile(repository / "tests/mprun/heads.c", program)
    return program


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two JPEGs and a PPM of the demo, of different sizes."""
    folder = tmp_path_factory.mktemp("images")
    for number, size in enumerate([(224, 224), (300, 200), (97, 161)]):
        image = cv2.resize(scene("val", number)[0], size)[:, :, ::-1]
        cv2.imwrite(str(folder / f"scene-{number}.{'ppm' if number == 2 else 'jpg'}"), image)
    return folder


@pytest.fixture(scope="session")
def mixed_cfg(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the packaged detector with precisions in its cfg, weights and names beside it."""
    files, folder = model_files(), tmp_path_factory.mktemp("mixed")
    text = Path(files.cfg).read_text(encoding="utf-8").replace("[convolutional]", "[convolutional]\nint8=1")
    text = text.replace("[convolutional]\nint8=1", "[convolutional]\nfp16=1", 1)
    (folder / "net.cfg").write_text(text, encoding="utf-8")
    shutil.copy(files.weights, folder / "net.weights")
    shutil.copy(files.names, folder / "net.names")
    return folder / "net.cfg"


@pytest.fixture
def jpeg_experiment(tmp_path: Path) -> Path:
    """Write the tiny network with images as JPEGs and labels; return the path of its experiment.yaml."""
    path = write_experiment(tmp_path)
    for png in sorted((tmp_path / "images").glob("*.png")):
        cv2.imwrite(str(png.with_suffix(".jpg")), cv2.imread(str(png)))
        png.unlink()
    return path
