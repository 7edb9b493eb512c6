# SPDX-License-Identifier: MIT
"""What surrounds mprun is not as it should be: closed or full outputs, little memory, signals at any moment."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from tests.fuzz.stopping import every_stop
from tests.mprun.conftest import Program, mpnet
from tests.networks import small_cfg, write_network

COMMANDS = (
    ("{images}",),
    ("--json", "{images}"),
    ("--bench", "--repeats", "1"),
    ("--info",),
    ("--evaluate", "{images}", "-o", "{out}"),
)
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    write_network(folder, text=small_cfg().replace("[convolutional]", "[convolutional]\nint8=1"))
    mpnet("export", folder / "net.cfg", "--to", "bundle", "--no-profile", "-o", folder / "net.mpnet")
    return folder / "net.mpnet"


def filled(words: tuple[str, ...], images: Path, output: Path) -> list[str]:
    return [word.format(images=images, out=output) for word in words]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("streams", "loses_text"), [(">&-", True), (">/dev/full", True), ("2>&-", False), ("<&- >&- 2>&-", True)]
)
def test_closed_and_full_streams(
    mprun: Program, bundle: Path, images: Path, words: tuple[str, ...], streams: str, loses_text: bool, tmp_path: Path
) -> None:
    """Whoever asked for a file has it whole; whoever asked for text is told that there is none."""
    command = [str(mprun.path), str(bundle), *filled(words, images, tmp_path / "out.json")]
    completed = subprocess.run(["sh", "-c", f'exec "$@" {streams}', "-", *command], capture_output=True, text=True, timeout=60)
    writes_text = "--evaluate" not in words
    assert completed.returncode == (2 if writes_text and loses_text else 0)
    assert completed.stderr.count("\n") == (completed.returncode == 2 and "2>" not in streams)
    assert [path.name for path in tmp_path.iterdir()] == ([] if writes_text else ["out.json"])


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_little_memory(mprun: Program, bundle: Path, images: Path, words: tuple[str, ...], tmp_path: Path) -> None:
    """64 MB of addresses are enough; with less it ends in one line."""
    for megabytes in (64, 24, 12, 8, 6, 4):
        output = tmp_path / "out.json"
        completed = subprocess.run(
            [str(mprun.path), str(bundle), "--threads", "2", *filled(words, images, output)],
            capture_output=True,
            text=True,
            timeout=60,
            preexec_fn=lambda limit=megabytes * MEGABYTE: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        )
        if completed.returncode == -signal.SIGSEGV and megabytes < 8:
            continue  # the system had no room to start it
        assert completed.returncode in ((0,) if megabytes == 64 else (0, 2)), completed.stderr
        assert completed.stderr.count("\n") == (completed.returncode == 2)
        assert [path.name for path in tmp_path.iterdir()] in ([], ["out.json"])


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGHUP], ids=lambda signal_number: signal_number.name)
def test_a_signal_at_any_system_call(
    mprun: Program, bundle: Path, images: Path, tmp_path: Path, signal_number: signal.Signals
) -> None:
    output = tmp_path / "out.json"
    words = [str(mprun.path), str(bundle), "--threads", "1", "--evaluate", str(images), "-o", str(output)]
    subprocess.run(words, check=True)
    content = output.read_bytes()
    assert len(content) > 100

    def check(killed: bool) -> None:
        remaining = sorted(path.name for path in tmp_path.iterdir())
        assert remaining in (["out.json"], [] if killed else ["out.json"])
        assert not output.exists() or output.read_bytes() == content

    def start() -> None:
        signal.signal(signal_number, signal.SIG_DFL)  # nohup hands an ignored SIGHUP down
        os.execv(words[0], words)

    stops = every_stop(lambda: output.unlink(missing_ok=True), start, check, 5, signal_number)
    assert stops > 50
