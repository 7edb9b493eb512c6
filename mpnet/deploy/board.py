# SPDX-License-Identifier: MIT
"""A board that is reached by the system's ssh: files are copied to it, mprun runs there, its answer comes back.

What is sent is one fixed script (board.sh) and words of letters, digits, dots and dashes that mpnet made itself; no name of a
file or network enters a command, here or there. A run goes on on the board when the connection breaks, and the same command
finds it again by the folder's name, which is made from the digests of what is run. The folder is removed once the answer is
here.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Mapping, Sequence

from mpnet.errors import ConfigError, EngineError
from mpnet.messages import shown

SCRIPT = Path(__file__).with_name("board.sh")
CONNECT_S, SILENT_S, LONGEST_S = 15, 60, 6 * 3600
"""Seconds until a connection has to stand, until a board that says nothing is given up, and until any run is."""
MOST_BYTES = 32 << 20
"""More than this no board's answer has."""
SLOWEST_BYTES_PER_S = 20_000
"""What a copy may take no longer than."""
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:%\[\]-]{0,254}")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*|--[a-z]+|-o")
_ANSWER = re.compile(rb"^mpnet:([a-z]+(?: (?:mprun|net\.mpnet))?)(?: (.*))?$", re.MULTILINE)


@dataclass(frozen=True)
class BoardState:
    """What a board says of itself while it runs; None and '' where it cannot be read.

    core: of its CPU, as Linux names it. board: its model. governor: of its clocks.
    fastest_mhz: the clock that its fastest core may have. slowest_mhz: the least that the fastest core had during the run.
    hottest_c: the highest temperature during the run.
    """

    core: str = ""
    board: str = ""
    governor: str = ""
    fastest_mhz: float | None = None
    slowest_mhz: float | None = None
    hottest_c: float | None = None

    @property
    def doubt(self) -> str:
        """Return why times of the run should not be believed, '' where nothing speaks against them."""
        if self.fastest_mhz and self.slowest_mhz and self.slowest_mhz < THROTTLED * self.fastest_mhz:
            heat = "" if self.hottest_c is None else f" at {self.hottest_c:.0f} degrees"
            return f"the clock fell to {self.slowest_mhz:.0f} of {self.fastest_mhz:.0f} MHz{heat}"
        return ""


THROTTLED = 0.95
"""Share of the fastest clock below which a core under load is held back."""


@dataclass(frozen=True)
class BoardAnswer:
    """What mprun left on a board. status: its exit code. content: the file that it wrote."""

    status: int
    content: bytes
    state: BoardState


@dataclass(frozen=True)
class Board:
    """A host that ssh reaches.

    host: as ssh takes it, USER@NAME or a name of ssh's own configuration. ssh_config: a file in its place, None: the user's.
    silent_s, longest_s: seconds, see the constants.
    """

    host: str
    ssh_config: Path | None = None
    silent_s: float = SILENT_S
    longest_s: float = LONGEST_S
    _script: bytes = field(default_factory=SCRIPT.read_bytes, repr=False)

    def __post_init__(self) -> None:
        if not _HOST.fullmatch(self.host):
            raise ConfigError(f"--on {shown(self.host)}: is no host; write USER@NAME, or a name of ~/.ssh/config")

    def run(self, program: Path | None, bundle: bytes, words: Sequence[str]) -> BoardAnswer:
        """Run mprun on the board with a bundle, and clean up.

        program: mprun for it, None: the one that `make mprun` or `make mprun-arm` made. words: its options beside the bundle.
        Raises: ConfigError without a program for this board, EngineError, one line each, for whatever goes wrong there.
        """
        digest = hashlib.sha256(repr((str(program), tuple(words))).encode() + bundle)
        name = digest.hexdigest()[:24]
        seen = self._ask("look", name)
        if "machine" not in seen:
            raise EngineError(
                f"{self.host}: did not answer as a board does; does `ssh {self.host} uname -m` work without a password?"
            )
        path = program or find_mprun(self.host, seen["machine"])
        for file, content in (("mprun", path.read_bytes()), ("net.mpnet", bundle)):
            if seen.get(f"has {file}") != str(len(content)):
                self._copy(name, file, content)
        answer = self._ask("run", name, *words)
        status = answer.get("status", "")
        try:
            if not status.isdecimal():
                raise EngineError(f"{self.host}: mprun was ended there ({shown(status or 'no status')}); try again")
            if int(status) not in (0, 1):
                raise EngineError(f"{self.host}: mprun failed there ({int(status)}): {shown(answer.get('errors', ''))}")
            return BoardAnswer(int(status), self._take(name), read_state(answer))
        finally:
            self._ask("clean", name)

    def _ask(self, action: str, name: str, *words: str) -> dict[str, str]:
        """Run the script; return its answers by word, of clocks the least and of temperatures the highest."""
        for word in words:
            if not _WORD.fullmatch(word):
                raise ConfigError(f"{shown(word)}: is no word that is sent to a board")
        output = self._ssh(["sh", "-s", "--", action, name, *words], self._script)
        answers: dict[str, str] = {}
        for word, value in _ANSWER.findall(output):
            key, text = word.decode(), value.decode("utf-8", "replace").strip()
            if key == "error":
                raise EngineError(f"{self.host}: {shown(text)}")
            if key in ("clock", "heat") and text.isdecimal() and answers.get(key, "").isdecimal():
                text = str((min if key == "clock" else max)(int(text), int(answers[key])))
            answers[key] = text or answers.get(key, "")
        return answers

    def _copy(self, name: str, file: str, content: bytes) -> None:
        # A copy says nothing until it is there.
        self._ssh([f"cat > .mpnet-board/{name}/{file}.part"], content, self.silent_s + len(content) / SLOWEST_BYTES_PER_S)
        if self._ask("keep", name, file).get(f"has {file}") != str(len(content)):
            raise EngineError(f"{self.host}: the copy of {file} is not whole there; is its disk full?")

    def _take(self, name: str) -> bytes:
        output = self._ssh(["sh", "-s", "--", "take", name], self._script)
        head = re.search(rb"^mpnet:bytes +([0-9]{1,9})\n", output, re.MULTILINE)
        content = b"" if head is None else output[head.end() :]
        if head is None or len(content) != int(head[1]):
            raise EngineError(f"{self.host}: what came back is not what mprun wrote; try again")
        return content

    def _ssh(self, command: Sequence[str], sent: bytes, silent_s: float | None = None) -> bytes:
        """Run a command there; return what it prints. silent_s: None: the board's. Raises: EngineError."""
        options = ["-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", "-o", "ServerAliveInterval=15"]
        config = [] if self.ssh_config is None else ["-F", str(self.ssh_config)]
        words = ["ssh", *config, *options, "--", self.host, " ".join(command)]
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as errors:
            given.write(sent)
            given.seek(0)
            try:
                process = subprocess.Popen(words, stdin=given, stdout=printed, stderr=errors)
            except FileNotFoundError:
                raise ConfigError("--on: there is no program `ssh` here; install OpenSSH's client") from None
            try:
                reason = self._wait(process, printed.fileno(), silent_s or self.silent_s)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            if reason:
                raise EngineError(f"{self.host}: {reason}")
            errors.seek(0)
            said = errors.read(2000).decode("utf-8", "replace").strip().splitlines()
            if process.returncode:
                raise EngineError(f"{self.host}: ssh ended with {process.returncode}: {shown(said[-1] if said else '')}")
            printed.seek(0)
            return printed.read(MOST_BYTES + 1)

    def _wait(self, process: subprocess.Popen[bytes], printed: int, silent_s: float) -> str:
        """Wait for the end; return why it was not waited for any longer, or ''."""
        began = heard = time.monotonic()
        size = 0
        while process.poll() is None:
            now, grown = time.monotonic(), os.fstat(printed).st_size
            if grown > MOST_BYTES:
                return f"sends more than {MOST_BYTES >> 20} MB; that is no answer of a board"
            if grown > size:
                size, heard = grown, now
            if now - began > self.longest_s:
                return f"took longer than {self.longest_s:.0f} s"
            if now - heard > silent_s:
                return f"said nothing for {now - heard:.0f} s; the same command goes on where it is"
            time.sleep(0.02)
        return f"sends more than {MOST_BYTES >> 20} MB" if os.fstat(printed).st_size > MOST_BYTES else ""


def find_mprun(host: str, machine: str) -> Path:
    """Return mprun for a kind of machine, as `make` puts it. Raises: ConfigError that says how to make it."""
    if machine in ("aarch64", "arm64"):
        candidates, rule = [Path("build/mprun-arm/mprun")], "make mprun-arm"
        if platform.machine() in ("aarch64", "arm64"):
            candidates, rule = [Path("build/mprun/mprun"), *candidates], "make mprun"
    elif machine == platform.machine():
        candidates, rule = [Path("build/mprun/mprun")], "make mprun"
    else:
        raise ConfigError(f"{host}: is {shown(machine)}; build mprun there (`make mprun`) and name the file with --mprun")
    found = next((path for path in candidates if path.is_file()), None)
    if found is None:
        raise ConfigError(f"{candidates[0]}: no such file; `{rule}` makes it, or name another one with --mprun")
    return found


def read_state(answers: Mapping[str, str]) -> BoardState:
    """Return what a board said of itself; numbers that are none count as unreadable."""

    def number(word: str, unit: float) -> float | None:
        text = answers.get(word, "")
        return int(text) / unit if text.isdecimal() and len(text) < 12 and int(text) > 0 else None

    def words(word: str) -> str:
        return "".join(c for c in answers.get(word, "") if c.isprintable())[:120].strip()

    return BoardState(
        words("core"), words("board"), words("governor"), number("fastest", 1e3), number("clock", 1e3), number("heat", 1e3)
    )
