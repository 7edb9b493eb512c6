# SPDX-License-Identifier: MIT
"""Ctrl-C at random moments of every command.

python -m tests.fuzz.interrupts TRIES SEED [COMMAND...]: each command is a fork of this process, in a group of its own, to which
SIGINT goes so many times at a random moment of the time that it takes when nobody disturbs it. It must be done, or end with
exit code 130 and `interrupted` as its last line, without a traceback; no file under its own name may be half written, no hidden
one may be left; and the same command must succeed afterwards. What happens before a command is called, while Python imports, is
tests/cli/test_environment.py's.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from mpnet.cli import download, signals
from mpnet.cli.fetch import RemoteFile
from tests.fuzz.kills import wait_for_exit
from tests.fuzz.writers import WRITERS, call, clean, half_written, prepare, read_outputs

SECONDS = 120
CONTENT = bytes(range(256)) * 4096
COMMANDS: dict[str, list[str]] = {
    **WRITERS,
    "show": ["show", "experiment.yaml"],
    "bench": ["bench", "net.cfg", "--repeats", "20", "-q"],
    "profile": ["profile", "net.cfg", "--repeats", "3", "-q", "-o", "out/table.json"],
    "compare": ["compare", "kept", "kept", "-q"],
    "pick": ["pick", "swept.sqlite", "--max-loss", "50 agreement"],
    "status": ["sweep", "--status", "swept.sqlite"],
    "list": ["list", "."],
    "doctor": ["doctor", "experiment.yaml", "-q", "--count", "2"],
    "targets": ["targets", "onnx"],
    "demo": ["demo", "--scenes", "6", "--out", "out/demo", "--quiet"],
    "download": ["download", "yolov3-tiny"],
}
"""Commands that write below out/ and the cache, or nothing; of `tune` Ctrl-C ends a stage."""
DONE = {"profile": (0, 1), "doctor": (0, 1)}
"""Exit codes of commands that say something by them: the machine is too busy, something was found."""


class _Handler(BaseHTTPRequestHandler):
    """Serves CONTENT slowly enough to be interrupted."""

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        with contextlib.suppress(OSError):
            for start in range(0, len(CONTENT), 1 << 16):
                self.wfile.write(CONTENT[start : start + (1 << 16)])
                time.sleep(0.01)


def serve() -> None:
    """Let `mpnet download` fetch CONTENT from this process."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/whole"
    file = RemoteFile("yolov3-tiny.weights", len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), (url,))
    download.MODELS["yolov3-tiny"] = (file,)


def forked(words: list[str], printed: Any) -> int:
    """Start a command as a group of its own; return its process id, once Ctrl-C would reach it."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 3
        try:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(printed.fileno(), 2)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let what they start behind `&` ignore it
            signals.handle_signals()
            os.write(write_end, b"1")
            code = call(words)
        except SystemExit as end:  # of commands that say their exit code
            code = int(end.code or 0)
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(write_end)
    os.read(read_end, 1)
    os.close(read_end)
    return pid


def run(words: list[str], delay: float | None = None) -> tuple[int | None, str, float]:
    """Run a command and interrupt it after so many seconds. Result: its exit code, what it said, seconds."""
    with tempfile.TemporaryFile() as printed:
        began = time.monotonic()
        pid = forked(words, printed)
        code = wait_for_exit(pid, SECONDS if delay is None else delay)
        if code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGINT)
            code = wait_for_exit(pid, SECONDS)
        took = time.monotonic() - began
        printed.seek(0)
        return code, printed.read().decode(), took


def hidden() -> list[str]:
    """Return the hidden files below out/."""
    return sorted(str(path) for path in Path("out").rglob(".*"))


def attack(name: str, tries: int, rng: random.Random) -> str:
    """Interrupt one command so many times. Result: a line of what was tried.

    Raises: AssertionError where something is wrong.
    """
    words, done = COMMANDS[name], DONE.get(name, (0,))
    expected_files: dict[str, bytes] = {}
    for _ in range(2):  # the first one imports
        clean()
        code, printed, took = run(words)
        assert code in done, f"{name}: {code}: {printed}"
        expected_files = read_outputs()
    interrupted = 0
    for _ in range(tries):
        clean()
        delay = rng.uniform(0.0, took)
        code, printed, _ = run(words, delay)
        description = f"{name}, after {delay:.3f} of {took:.3f} s: exit code {code}: {printed}"
        assert code in (130, *done), description
        assert "Traceback" not in printed, description
        assert "Error" not in printed, description
        if code == 130:
            interrupted += 1
            assert printed.rstrip().splitlines()[-1] == "interrupted", description
            assert printed.count("interrupted") == 1, description
        faults = half_written(expected_files, set()) if name not in ("demo", "profile") else []
        assert not faults, f"{description}\n{faults}"
        assert not hidden(), f"{description}\n{hidden()}"
        code, printed, took = run(words)
        exists = code == 2 and "exists" in printed and any(Path("out").iterdir())
        assert code in done or exists, f"{description}\nand again: {code}: {printed}"
    return f"{name}: {tries} tries, {interrupted} interrupted, nothing half or left"


def main(tries: int, seed: int, names: list[str]) -> int:
    os.environ["OMP_NUM_THREADS"] = "1"
    rng, has_failed = random.Random(seed), False
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as space:
        os.chdir(space)
        os.environ["MPNET_CACHE"] = f"{space}/cache"
        with contextlib.redirect_stdout(io.StringIO()):
            prepare()
        serve()
        for name in names or COMMANDS:
            if name == "import" and not Path("model.onnx").exists():
                continue
            try:
                print(attack(name, tries, rng), flush=True)
            except AssertionError as error:
                has_failed = True
                print(error, flush=True)
            shutil.rmtree("out", ignore_errors=True)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
