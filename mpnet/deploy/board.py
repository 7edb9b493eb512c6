# SPDX-License-Identifier: MIT
"""A board that is reached by the system's ssh: files are copied to it, mprun runs there, its answer comes back.

What is sent is one fixed script (board.sh), files that mpnet named, and a list of jobs: words of letters, digits, dots and
dashes that mpnet made itself. No name of a file or network enters a command, here or there. Jobs go on on the board when the
connection breaks, and the same command finds them again by the folder's name, which is made from the digests of what is run,
mprun's among them. The folder is removed once the answers are here.
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
from typing import Callable, Mapping, Sequence

from mpnet.errors import ConfigError, EngineError
from mpnet.json_values import Json
from mpnet.messages import shown

SCRIPT = Path(__file__).with_name("board.sh")
CONNECT_S, SILENT_S, LONGEST_S = 15, 60, 6 * 3600
"""Seconds until a connection has to stand, until a board that says nothing is given up, and until any run is."""
MOST_BYTES = 32 << 20
"""No answer of a board is larger, unless what asks for it says so."""
SLOWEST_BYTES_PER_S = 20_000
"""What a copy may take no longer than."""
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:%\[\]-]{0,254}")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*|--[a-z]+|-o")
_ANSWER = re.compile(rb"^mpnet:(has [a-z0-9.-]+|[a-z]+)(?: (.*))?$", re.MULTILINE)


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
class BoardFile:
    """A file that a board gets. name: there, made by mpnet; of a .tar the board gets what is in it.

    digest: what decides its content. content: makes it, when it is sent.
    """

    name: str
    digest: str
    content: Callable[[], bytes] = field(repr=False)

    @staticmethod
    def of(name: str, content: bytes) -> BoardFile:
        """Return a file whose content is at hand."""
        return BoardFile(name, hashlib.sha256(content).hexdigest(), lambda: content)


@dataclass(frozen=True)
class BoardAnswer:
    """What mprun left on a board. status: the exit code of the last job. contents: of the files that were asked for."""

    status: int
    contents: tuple[bytes, ...]
    state: BoardState


def printed_by(job: int) -> str:
    """Return the name of the file that holds what a job printed."""
    return f"printed-{job}"


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

    def run(
        self,
        program: Path | None,
        files: Sequence[BoardFile],
        jobs: Sequence[Sequence[str]],
        answers: Sequence[str],
        most_bytes: int = MOST_BYTES,
    ) -> BoardAnswer:
        """Run mprun on the board, one job after the other until one fails, and clean up.

        program: mprun for it, None: the one that `make mprun` or `make mprun-arm` made. files: what the jobs read.
        jobs: of each mprun's words. answers: names of files that come back. most_bytes: no larger answer is taken.
        Raises: ConfigError without a program for this board, EngineError, one line each, for whatever goes wrong there.
        """
        for word in (word for job in jobs for word in job):
            _check_word(word)
        path = program or find_mprun(self.host, self._known("machine", "none")["machine"])
        mprun = BoardFile.of("mprun", path.read_bytes())
        lines = BoardFile.of("jobs", "".join(" ".join(job) + "\n" for job in jobs).encode())
        sent = (mprun, lines, *files)
        name = hashlib.sha256(repr([(file.name, file.digest) for file in sent]).encode()).hexdigest()[:24]
        present = self._known("look", name)
        for file in sent:
            content = file.content()
            if present.get(f"has {file.name}") != str(len(content)):
                self._copy(name, file.name, content)
        answer = self._ask("run", name)
        status = answer.get("status", "")
        try:
            if not status.isdecimal():
                raise EngineError(f"{self.host}: mprun was ended there ({shown(status or 'no status')}); try again")
            if int(status) not in (0, 1):
                raise EngineError(f"{self.host}: mprun failed there ({int(status)}): {shown(answer.get('errors', ''))}")
            contents = tuple(self._take(name, file, most_bytes) for file in answers)
            return BoardAnswer(int(status), contents, read_state(answer))
        finally:
            self._ask("clean", name)

    def _known(self, action: str, name: str) -> dict[str, str]:
        """Ask for what any board answers. Raises: EngineError for a host that says something else."""
        answers = self._ask(action, name)
        if "machine" not in answers:
            raise EngineError(
                f"{self.host}: did not answer as a board does; does `ssh {self.host} uname -m` work without a password?"
            )
        return answers

    def _ask(self, action: str, name: str, *words: str) -> dict[str, str]:
        """Run the script; return its answers by word, of clocks the least and of temperatures the highest."""
        for word in words:
            _check_word(word)
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
        _check_word(file)
        kept = f"tar -xof {file}.part && rm -f {file}.part && echo {len(content)} > {file}.kept"
        if not file.endswith(".tar"):
            kept = f"mv {file}.part {file} && chmod 700 {file}"
        # Of words of mpnet's own. By sh, whatever shell a login has. A file has its name when all of it is there.
        is_whole = f'[ "$(wc -c < {file}.part)" -eq {len(content)} ]'
        command = f"sh -c 'cd .mpnet-board/{name} && cat > {file}.part && {is_whole} && {kept} && echo mpnet:kept'"
        # A copy says nothing until it is there.
        output = self._ssh([command], content, self.silent_s + len(content) / SLOWEST_BYTES_PER_S)
        if b"mpnet:kept" not in output:
            raise EngineError(f"{self.host}: the copy of {file} is not whole there; is its disk full?")

    def _take(self, name: str, file: str, most_bytes: int) -> bytes:
        _check_word(file)
        output = self._ssh(["sh", "-s", "--", "take", name, file], self._script, most_bytes=most_bytes)
        head = re.search(rb"^mpnet:bytes +([0-9]{1,9})\n", output, re.MULTILINE)
        content = b"" if head is None else output[head.end() :]
        if head is None or len(content) != int(head[1]):
            raise EngineError(f"{self.host}: what came back is not what mprun wrote; try again")
        return content

    def _ssh(self, command: Sequence[str], sent: bytes, silent_s: float | None = None, most_bytes: int = MOST_BYTES) -> bytes:
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
                reason = self._wait(process, printed.fileno(), silent_s or self.silent_s, most_bytes)
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
            return printed.read(most_bytes + 1)

    def _wait(self, process: subprocess.Popen[bytes], printed: int, silent_s: float, most_bytes: int) -> str:
        """Wait for the end; return why it was not waited for any longer, or ''."""
        began = heard = time.monotonic()
        size = 0
        while process.poll() is None:
            now, grown = time.monotonic(), os.fstat(printed).st_size
            if grown > most_bytes:
                return f"sends more than {most_bytes >> 20} MB; that is no answer of a board"
            if grown > size:
                size, heard = grown, now
            if now - began > self.longest_s:
                return f"took longer than {self.longest_s:.0f} s"
            if now - heard > silent_s:
                return f"said nothing for {now - heard:.0f} s; the same command goes on where it is"
            time.sleep(0.02)
        return f"sends more than {most_bytes >> 20} MB" if os.fstat(printed).st_size > most_bytes else ""


def _check_word(word: str) -> None:
    if not _WORD.fullmatch(word):
        raise ConfigError(f"{shown(word)}: is no word that is sent to a board")


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


def describe_state(host: str, state: BoardState) -> dict[str, Json]:
    """Return what documents keep of a board: only what could be read."""
    values: dict[str, Json] = {
        "host": host.rpartition("@")[2],
        "core": state.core,
        "board": state.board,
        "governor": state.governor,
        "fastest_mhz": state.fastest_mhz,
        "slowest_mhz": state.slowest_mhz,
        "hottest_c": state.hottest_c,
        "doubt": state.doubt,
    }
    return {name: value for name, value in values.items() if value not in (None, "")}
