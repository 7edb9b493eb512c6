# SPDX-License-Identifier: MIT
"""Arrays that processes share, and that leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from mpnet.errors import StoreError
from mpnet.sweep.evaluate.context import values_of
from mpnet.sweep.evaluate.scratch import Scratch

READER_PROGRAM = "import sys; from mpnet.sweep.evaluate.context import values_of; print(values_of(sys.argv[1]).sum())"
MAKE = (
    "import sys; from mpnet.sweep.evaluate.scratch import Scratch; s = Scratch(); s.array((1000, 10));"
    "print('made', flush=True); sys.stdin.read()"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_another_process_sees_what_was_written(folder: Path) -> None:
    scratch = Scratch()
    values, path = scratch.array((3, 4, 5))
    values[:] = 2
    assert np.array_equal(values_of(path), np.full((3, 4, 5), 2, np.float32))
    child = subprocess.run([sys.executable, "-c", READER_PROGRAM, path], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "120.0"
    scratch.close()
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="files without a name need Linux")
def test_a_killed_process_leaves_nothing(folder: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", MAKE], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == b"made\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    child.stdin.close()
    assert list(folder.iterdir()) == []


def test_no_room_is_one_line(folder: Path) -> None:
    script = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))\n"
        "from mpnet.errors import StoreError\n"
        "from mpnet.sweep.evaluate.scratch import Scratch\n"
        "try:\n"
        "    Scratch().array((1000, 1000))\n"
        "except StoreError as error:\n"
        "    print(error)\n"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (child.returncode, child.stderr) == (0, "")
    assert f"{folder}: no room for 4 MB of images" in child.stdout
    assert "set TMPDIR to another folder" in child.stdout


def test_a_file_that_is_gone_is_one_line() -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        values_of("/nowhere/images.npy")
