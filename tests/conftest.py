# SPDX-License-Identifier: MIT
"""Fixtures shared by all tests."""

from __future__ import annotations

import importlib.util
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mpnet.demo.project import write_project

REPOSITORY = Path(__file__).resolve().parent.parent

# A shell starts background jobs with SIGINT ignored, and so would be every program that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# As the command line sets it before OpenCV is loaded, which reads it once in a process.
os.environ.setdefault("OPENCV_LOG_LEVEL", "OFF")
os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")


# What needs one of these is slow: real networks and images, chromium, a cluster of fresh processes, a C program to build.
SLOW_FIXTURES = {"shared_data", "browser", "scheduler", "mprun"}


# Begun first: each takes over half a minute, for which other processes would wait at the end.
LONGEST = ("test_a_new_users_session", "test_published_networks", "test_cases_are_chosen_by_name_and_the_same_under_any_seed")


SHARED_MEMORY, ENOUGH_BYTES = Path("/dev/shm"), 2 << 30
"""Where tests write if there is as much room: results and stores wait for a disk at each of their commits, but not there."""


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark here, since sanitizers and emulated CPUs take the tests without pyproject.toml."""
    config.addinivalue_line("markers", "slow: left out by `make quick`")
    if config.inipath == REPOSITORY / "pyproject.toml" and os.access(SHARED_MEMORY, os.W_OK):
        space = os.statvfs(SHARED_MEMORY)
        # Tests start programs that they have built.
        if not space.f_flag & os.ST_NOEXEC and space.f_bavail * space.f_frsize >= ENOUGH_BYTES:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(SHARED_MEMORY))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests as slow by what they need, and begin with the longest."""
    items.sort(key=lambda item: item.name not in LONGEST)
    for item in items:
        if SLOW_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep prepared weights of tests, and of programs that they start, away from the user's."""
    os.environ["MPNET_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """Return the root of the source tree."""
    return REPOSITORY


def shared_folder(name: str) -> Path:
    """Return a folder of what developers share and users do not have; without it the test is skipped, aloud."""
    folder = Path(os.environ.get("MPNET_SHARED", REPOSITORY.parent / "shared")) / name
    if not folder.is_dir():
        pytest.skip(f"SKIPPED WITHOUT REAL DATA: no folder {folder} (set MPNET_SHARED)")
    return folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return real networks, images and reference results for developers."""
    return shared_folder("data")


@pytest.fixture(scope="session")
def wild() -> Path:
    """Return files as people have them, from public reports of wrong numbers."""
    return shared_folder("wild")


DEMO_SCENES = 12


@dataclass(frozen=True)
class DemoModel:
    """The packaged trained network with a few labelled scenes. experiment: demo.yaml that names all of them."""

    cfg: Path
    weights: Path
    names: Path
    images: Path
    labels: Path
    experiment: Path


@pytest.fixture(scope="session")
def demo_model(tmp_path_factory: pytest.TempPathFactory) -> DemoModel:
    """Return a trained network and 12 validation scenes, for tests that need real activations; treat as read-only.

    Results go elsewhere: copy the experiment, or override `output`.
    """
    project = write_project(tmp_path_factory.mktemp("demo"), DEMO_SCENES)
    model, val = project.folder / "model", project.folder / "val"
    return DemoModel(
        model / "demo.cfg", model / "demo.weights", model / "demo.names", val / "images", val / "labels", project.experiment
    )


@pytest.fixture
def tensorflow_here() -> Any:
    """Return TensorFlow, which answers with its own kernels; the test is skipped aloud without it."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("SKIPPED WITHOUT TENSORFLOW: pip install 'mpnet[tf]' compares with it live")
    # oneDNN's kernels, which TensorFlow takes on CPUs with VNNI, answer otherwise; it is read when TensorFlow is imported.
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
    import tensorflow

    return tensorflow
