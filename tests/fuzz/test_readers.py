# SPDX-License-Identifier: MIT
"""Every reader over mutated files, its corpus and what hunts have found; the most memory and time that a file may take."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
from pathlib import Path
from typing import Iterator

import pytest

from mpnet.cli.main import guarded
from mpnet.detection.images import read_image
from mpnet.formats.documents.json_text import read_json
from tests.formats.test_images_walk import jpeg_of_scans
from tests.fuzz.readers import FORMATS, _hang, _look_at, attempt, available, prepare

RUNS = 12


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readers")
    prepare(folder)
    return folder


@pytest.fixture
def format_file(workspace: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, Path]]:
    """Yield a format and its file, which is put back."""
    name: str = request.param
    if not available(name):
        pytest.skip(f"{FORMATS[name].seed}: its package is not installed")
    file = workspace / FORMATS[name].seed
    content = file.read_bytes()
    handler = signal.signal(signal.SIGPROF, _hang)
    yield name, file
    signal.signal(signal.SIGPROF, handler)
    file.write_bytes(content)
    for leftover in (*file.parent.glob(f"{file.name}-*"), *workspace.glob("salvaged-*")):
        leftover.unlink()


def read_content(name: str, workspace: Path, file: Path, content: bytes, number: int) -> str | None:
    for leftover in (*file.parent.glob(f"{file.name}-*"), *workspace.glob("salvaged-*")):
        leftover.unlink()
    file.write_bytes(content)
    return attempt(FORMATS[name], workspace, number)


@pytest.mark.parametrize("format_file", FORMATS, indirect=True)
def test_mutated_files_end_in_one_line_or_well(format_file: tuple[str, Path], workspace: Path) -> None:
    """A hunt of its own is `python -m tests.fuzz.readers all 50000`."""
    name, file = format_file
    seed, rng = file.read_bytes(), random.Random(f"{name} 1")
    for number in range(1, RUNS + 1):
        content = FORMATS[name].mutation(seed, rng)
        assert read_content(name, workspace, file, content, number) is None, f"run {number}"


@pytest.mark.parametrize("format_file", FORMATS, indirect=True)
def test_what_hunts_have_found_stays_mended(format_file: tuple[str, Path], workspace: Path) -> None:
    """What failed once, by every command that reads it; and a file for each sentence of an error (`--corpus`), by one."""
    name, file = format_file
    for folder, other_numbers in (("findings", (0, 1, 2)), ("corpus", ())):
        for path in sorted((Path(__file__).parent / folder / "readers").glob(f"{name}-*")):
            for number in (int(path.name.split("-")[1]), *other_numbers):
                assert read_content(name, workspace, file, path.read_bytes(), number) is None, path.name


def test_unmutated_files_are_read(workspace: Path) -> None:
    for name, kind in FORMATS.items():
        if not available(name):
            continue
        assert attempt(kind, workspace, 1) is None, name
        assert guarded(lambda kind=kind: _look_at(kind, workspace, 1)) == 0, name


def cost(work: object) -> tuple[int, float]:
    """Return the megabytes beyond the start and seconds of CPU time that a call takes, in a process of its own."""
    assert callable(work)
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            start_seconds = sum(os.times()[:2])
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115
            guarded(work)
            grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start
            os.write(write_end, f"{grown_kb // 1024} {sum(os.times()[:2]) - start_seconds}".encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        megabytes, seconds = pipe.read().split()
    os.waitpid(pid, 0)
    return int(megabytes), float(seconds)


HOSTILE = {
    "chunk4g.png": (20, 1),
    "jpeg-2000-scans.jpg": (20, 1),
    "remark.jpg": (50, 1),
    "result-steps-text/result.json": (20, 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_the_reproducers_may_take(name: str, shared_data: Path) -> None:
    megabytes, seconds = HOSTILE[name]
    path = shared_data / "hostile" / name
    cost_taken = cost(lambda: read_json(path) and None if name.endswith("json") else read_image(path) is None)
    assert cost_taken <= (megabytes, cost_taken[1])
    assert cost_taken[1] <= seconds


@pytest.mark.parametrize(
    ("name", "content", "megabytes", "seconds"),
    [
        ("commas.json", b"[" + b"[]," * 10_000_000 + b"1]", 1_000, 30),
        ("deep.json", b"[" * 1_000_000, 60, 2),
        ("fill.jpg", b"\xff\xd8" + b"\xff" * 10_000_000, 60, 2),
        ("fill-behind.jpg", jpeg_of_scans(16, 16, 1)[:-2] + b"\xff" * 10_000_000, 60, 2),
        ("scans.jpg", jpeg_of_scans(9_000, 9_000, 14), 900, 10),
        ("scans-own.jpg", jpeg_of_scans(5_000, 5_000, 47), 600, 10),
    ],
)
@pytest.mark.slow
def test_what_a_small_file_may_take(name: str, content: bytes, megabytes: int, seconds: float, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    cost_taken = cost(lambda: read_json(path) and None if name.endswith("json") else read_image(path) is None)
    assert cost_taken <= (megabytes, cost_taken[1])
    assert cost_taken[1] <= seconds
