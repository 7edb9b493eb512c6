# SPDX-License-Identifier: MIT
"""The output of commands: one JSON document, or text and tables; progress on standard error."""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Callable, Iterator, TypeVar

import click

from mpnet.messages import one_line
from mpnet.progress import Advance, Progress, silent

if TYPE_CHECKING:
    from rich.console import Console  # slow to import; commands that print plain lines do without

NOT_SHOWN = 4
"""Exit status where a budget was to be shown to be kept, and is not: docs/commands.md."""
_Result = TypeVar("_Result")
# Pipes and files have no width; no table is wider than this one.
WIDTH_WITHOUT_TERMINAL = 500
PLAIN_INTERVAL_S = 10.0


def console(stderr: bool = False) -> Console:
    """Return a console for standard output, or standard error for progress and remarks.

    Plain text when it is no terminal, without colour when NO_COLOR is set.
    """
    from rich.console import Console

    class _PipedConsole(Console):
        """A console whose reader may go away, which ends the program as it does elsewhere: Rich would end it with 1."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    stream = sys.stderr if stderr else sys.stdout
    terminal = stream.isatty()
    # Names of files and classes are shown as they are: no markup, no emoji codes, no guessed highlighting.
    return _PipedConsole(
        file=stream,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=not terminal,
        force_terminal=terminal,
        width=None if terminal else WIDTH_WITHOUT_TERMINAL,
        legacy_windows=False,
    )


def doubt_text(doubt: str) -> str:
    """Return what is said of times that a board took while its clock fell."""
    return f"the times are not to be believed: {doubt}; cool the board, or set its governor, and measure again"


def print_json(document: object) -> None:
    """Write `document` as the only thing on standard output; numbers that are not finite become null."""
    from mpnet.formats.documents.json_text import finite

    click.echo(json.dumps(finite(document), indent=2, ensure_ascii=True, allow_nan=False))


def print_result(result: _Result, as_json: bool, show: Callable[[_Result, Console], object]) -> None:
    """Print a command's result: as a document with --json, else what `show` says of it on standard output.

    result: a dataclass, or a document as it is.
    """
    if not as_json:
        show(result, console())
        return
    from dataclasses import is_dataclass  # which help does without

    from mpnet.formats.documents import typed

    print_json(typed.as_json(result) if is_dataclass(result) and not isinstance(result, type) else result)


def print_command(line: str) -> None:
    """Print a command to copy: however narrow the terminal is, without line ends of ours in it."""
    console().print(line, style="bold", soft_wrap=True)


def note(message: str, screen: Console | None = None) -> None:
    """Print a remark on standard error, not to be mistaken for the result. screen: what draws there already."""
    (screen or console(stderr=True)).print(one_line(message), style="dim")


def fail(message: str) -> int:
    """Write `message` as one line on standard error; returns exit code 2."""
    line = one_line(message)
    try:
        sys.stderr.write(f"error: {line}\n")
    except UnicodeEncodeError:
        sys.stderr.write(f"error: {line.encode('ascii', 'backslashreplace').decode()}\n")
    except OSError:  # nobody listens
        pass
    return 2


def progress(quiet: bool) -> Progress:
    """Return a progress that shows on standard error how far long work is: a bar in a terminal, else a line now and then."""
    return silent if quiet else _shown


@contextmanager
def _shown(label: str, total: int | None) -> Iterator[Advance]:
    if sys.stderr.isatty():
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        target = console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bar(*columns, console=target, transient=True) as bar:
            task = bar.add_task(label, total=total)
            yield lambda count: bar.update(task, advance=count)
    else:
        yield _plain_progress(label, total)


def _plain_progress(label: str, total: int | None) -> Advance:
    done = 0
    last = time.monotonic()

    def advance(count: int) -> None:
        nonlocal done, last
        done += count
        now = time.monotonic()
        if now - last >= PLAIN_INTERVAL_S:
            last = now
            click.echo(f"{label}: {done}" + (f" of {total}" if total else ""), err=True)

    return advance
