# SPDX-License-Identifier: MIT
"""The core takes no memory of its own, and mprun ends well whichever of its requests to the system fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.mprun.conftest import Program, mpnet
from tests.networks import small_cfg, write_network

ALLOCATING = {"malloc", "calloc", "realloc", "free", "strdup", "posix_memalign", "aligned_alloc", "mmap", "alloca"}
WRAPPED = (
    "malloc",
    "calloc",
    "realloc",
    "free",
    "strdup",
    "posix_memalign",
    "mmap",
    "open_memstream",
    "fopen",
    "pthread_create",
)

COMMANDS = ("main", "evaluate", "bench", "profile", "info", "output")  # of the program alone, as its Makefile says


def test_the_core_takes_memory_from_its_callers(mprun: Program) -> None:
    """Of all that mpnet calls, JPEG included, nothing allocates: there is no n-th allocation to fail. mprun does."""
    objects = mprun.path.parent / "objects"
    allocators_of = {}
    for path in sorted(objects.rglob("*.o")):
        text = subprocess.run(["nm", "-u", "-f", "posix", str(path)], check=True, capture_output=True, text=True).stdout
        if allocators := ALLOCATING & {line.split()[0].split("@")[0] for line in text.splitlines()}:
            allocators_of[str(path.relative_to(objects))] = allocators
    assert allocators_of
    assert {name for name in allocators_of if not name.startswith("mprun/")} == set()


@pytest.fixture(scope="module")
def failing(mprun: Program, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return mprun with failing.c between it and the system."""
    program = tmp_path_factory.mktemp("failing") / "mprun"
    objects = [str(mprun.path.parent / "objects" / "mprun" / f"{name}.o") for name in COMMANDS]
    subprocess.run(
        [
            "gcc",
            "-Wall",
            "-Werror",
            *(f"-Wl,--wrap={name}" for name in WRAPPED),
            "tests/mprun/failing.c",
            *objects,
            str(mprun.library),
            "-lm",
            "-pthread",
            "-o",
            str(program),
        ],
        check=True,
        cwd=repository,
    )
    return program


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory")
    write_network(folder, text=small_cfg().replace("[convolutional]", "[convolutional]\nint8=1"))
    mpnet("export", folder / "net.cfg", "--to", "bundle", "-o", folder / "net.mpnet")
    return folder / "net.mpnet"


@pytest.mark.parametrize(
    "words",
    [
        ("--json", "{folder}"),
        ("{folder}",),
        ("--evaluate", "{folder}", "-o", "{out}"),
        ("--info", "--json"),
        ("--evaluate", "{list}", "-o", "{out}"),
        ("--bench", "--repeats", "1"),
        pytest.param(("--profile", "--repeats", "1", "-o", "{out}"), marks=pytest.mark.slow),
    ],
    ids=lambda words: " ".join(words),
)
def test_any_request_that_fails(failing: Path, bundle: Path, images: Path, words: tuple[str, ...], tmp_path: Path) -> None:
    output = tmp_path / "out" / "out.json"
    listed = tmp_path / "list"
    listed.write_text("".join(f"{path}\n" for path in sorted(images.iterdir())))
    filled = [word.format(folder=images, out=output, list=listed) for word in words]
    # A table asks for the same again and again, and may say that the machine is busy.
    step, well = (7, (0, 1)) if "--profile" in words else (1, (0,))

    def run(number: int) -> tuple[int, str, list[str], int]:
        shutil.rmtree(output.parent, ignore_errors=True)
        output.parent.mkdir()
        completed = subprocess.run(
            [str(failing), str(bundle), "--threads", "2", *filled],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "MPRUN_FAIL": str(number)},
        )
        *messages, last_line = completed.stderr.splitlines()
        request_count = re.fullmatch(r"requests (\d+), left 0", last_line)
        assert request_count, f"request {number}: {completed.stderr}"
        return completed.returncode, completed.stdout, messages, int(request_count[1])

    code, whole_output, messages, requests = run(0)
    assert code in well
    assert len(messages) == code
    content = output.read_bytes() if output.exists() else b""
    for number in range(1, requests + 1, step):
        code, printed, messages, _ = run(number)
        assert code in (*well, 2), f"request {number}"
        assert len(messages) == (code > 0), f"request {number}: {messages}"
        assert all(re.match(r"mprun: .", line) for line in messages)
        if code == 2:
            assert list(output.parent.iterdir()) == []
        elif not {"--bench", "--profile", "--info"} & set(words):  # times differ, and a CPU without its name
            assert (printed, output.read_bytes() if output.exists() else b"") == (whole_output, content)
    assert requests > 5
