# SPDX-License-Identifier: MIT
"""What holds for every command: help, exit codes, one line for every foreseeable failure."""

from __future__ import annotations

import errno
import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import cv2
import pytest

from mpnet.cli import main as cli_main
from mpnet.cli import signals
from mpnet.cli.output import print_command
from mpnet.errors import ConfigError

MPNET = [sys.executable, "-m", "mpnet"]


def run(*arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MPNET, *arguments], capture_output=True, text=True, check=False, **settings)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("name", list(cli_main.COMMANDS))
def test_help_has_a_summary_and_an_example(name: str) -> None:
    command = cli_main.cli.get_command(click.Context(cli_main.cli), name)
    assert command is not None
    text = command.get_help(click.Context(command, info_name=f"mpnet {name}"))
    assert "Example" in text
    assert f"mpnet {name}" in text.partition("Example")[2]


@pytest.mark.parametrize("name", list(cli_main.COMMANDS))
def test_every_option_reaches_its_command(name: str) -> None:
    command = cli_main.cli.get_command(click.Context(cli_main.cli), name)
    assert command is not None
    assert command.callback is not None
    signature_parameters = inspect.signature(inspect.unwrap(command.callback)).parameters
    keyword_parameters = {
        name
        for name, signature_parameter in signature_parameters.items()
        if signature_parameter.kind is inspect.Parameter.VAR_KEYWORD
    }
    option_names = {str(parameter.name) for parameter in command.params if parameter.expose_value}
    assert option_names >= set(signature_parameters) - keyword_parameters
    assert keyword_parameters or option_names == set(signature_parameters)


def test_opencvs_lack_of_memory_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(error: Exception, cause: Exception | None = None) -> int:
        def call() -> None:
            raise error from cause

        return cli_main.guarded(call)

    assert refuse(cv2.error("std::bad_alloc")) == 2
    assert refuse(cv2.error("Failed to allocate 12288 bytes in function 'OutOfMemoryError'")) == 2
    assert refuse(SystemError("returned a result with an exception set"), MemoryError()) == 2
    assert capsys.readouterr().err.splitlines() == [f"error: {cli_main.OUT_OF_MEMORY}"] * 3
    with pytest.raises(cv2.error):
        refuse(cv2.error("another of ours"))


def test_help_lists_every_command() -> None:
    result = run("--help")
    assert result.returncode == 0
    for name in cli_main.COMMANDS:
        assert f"\n  {name} " in result.stdout


def test_help_of_all_commands_imports_no_kernels() -> None:
    code = (
        "import sys, mpnet.cli.main as m; m._run(['--help']); "
        "print(sorted(set(sys.modules) & {'numpy', 'cv2', 'yaml', 'rich'}))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shwo"], "error: no command 'shwo'; did you mean 'show'? (see mpnet --help)\n"),
        (["--frob"], "error: No such option"),
        (["download", "yolov9"], "error: Invalid value for '{yolov3-tiny}': 'yolov9' is unknown; did you mean 'yolov3-tiny'? "),
        (
            ["run", "missing.yaml"],
            "error: missing.yaml: cannot be read (No such file or directory); name a readable YAML file\n",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = run(*arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ConfigError("x.cfg:3: bad"), 2, "error: x.cfg:3: bad\n"),
        (ConfigError("a\nb\x1b[31m"), 2, "error: a\\nb\\x1b[31m\n"),
        (
            OSError(errno.ENOSPC, "No space left on device", "runs/a"),
            2,
            "error: runs/a: No space left on device; free some space or choose another folder\n",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "/x"),
            2,
            "error: /x: Permission denied; check its permissions or choose another folder\n",
        ),
        (
            OSError(errno.EROFS, "Read-only file system", "/x"),
            2,
            "error: /x: Read-only file system; choose a folder that can be written to\n",
        ),
        (MemoryError(), 2, "error: out of memory; use a smaller runtime.batch, fewer workers or a smaller network\n"),
        (
            ImportError("libGL.so.1: cannot open shared object file"),
            2,
            "error: libGL.so.1: cannot open shared object file; install mpnet anew, with the packages that it needs: "
            "pip install --force-reinstall .\n",
        ),
        (
            ModuleNotFoundError("No module named 'jinja2'", name="jinja2"),
            2,
            "error: this needs jinja2, which is not installed; pip install 'mpnet[report]'\n",
        ),
        (
            ModuleNotFoundError("No module named 'x.y'", name="x.y"),
            2,
            "error: the Python module 'x.y' is missing; install mpnet anew, with all that it needs: pip install mpnet\n",
        ),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_failures_become_one_line(
    error: BaseException, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(**settings: object) -> None:
        raise error

    monkeypatch.setattr(cli_main.cli, "main", failing)
    assert cli_main._run([]) == code
    assert capsys.readouterr() == ("", message)


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "SystemExit")])
def test_a_signal_that_python_would_ignore_comes_again(number: int, error: str) -> None:
    """In callbacks of Python's import system, whose code is frozen, exceptions are ignored.

    A process of its own: an alarm among the threads of everything that other tests loaded has ended pytest's worker. The alarm
    waits until the line is out, which it would cut on a busy machine.
    """
    program = f"""
import signal, time
from types import SimpleNamespace
from mpnet.cli import signals

importing = SimpleNamespace(f_code=SimpleNamespace(co_filename="<frozen importlib._bootstrap>"))
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGALRM}})
try:
    signals._stopped({int(number)}, importing)
    print("deferred", flush=True)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {{signal.SIGALRM}})
    time.sleep(60)
except BaseException as raised:
    print(type(raised).__name__)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr, result.stdout) == (0, "", f"deferred\n{error}\n")


def test_a_closed_pipe_is_silent() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as pipe:
        result = subprocess.run([*MPNET, "--help"], stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    assert result.stderr == ""


def test_terminate_unwinds(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as excinfo:
        signals._stopped(signal.SIGTERM, None)
    assert excinfo.value.code == 143


def test_a_command_to_copy_has_no_line_end_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a terminal of 80 columns, in which rich would break it."""
    leader, follower = os.openpty()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", os.fdopen(follower, "w", encoding="utf-8"))
    print_command("$ mpnet " + "--set name=value " * 10)
    sys.stdout.close()
    text = os.read(leader, 4096).decode()
    os.close(leader)
    assert text.count("\n") == 1
    assert text.count("--set name=value") == 10
