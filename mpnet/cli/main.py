# SPDX-License-Identifier: MIT
"""The command `mpnet`: finds the subcommand, turns every foreseeable failure into one line and an exit code.

Exit codes: 0 done, 1 a check that the user asked for failed (`compare --fail-under`), 2 bad input or an impossible
request, 3 a fault of mpnet itself, 4 a budget is not shown to be kept (`--require-shown`), 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import importlib
import os
import sys
import warnings
from typing import IO, Any, Callable, Iterator, NoReturn, Sequence

import click

from mpnet import __version__
from mpnet.cli.output import fail, note
from mpnet.cli.signals import handle_signals
from mpnet.errors import FallbackWarning, InternalError, MpnetError

# Command -> what it does, in the order of `mpnet --help`. Each is in the file of its name, imported when called.
COMMANDS: dict[str, str] = {
    "init": "An experiment file for a network and images of your own.",
    "show": "A network's layers: shapes, precisions, conversions, cost.",
    "detect": "Find objects in images, videos and what a camera sees.",
    "run": "Evaluate one configuration of an experiment file.",
    "sweep": "Search over precisions: every combination, or a quick first answer.",
    "profile": "Measure this machine, for sweeps with its latency.",
    "bench": "Speed of a network: layers, precisions, kernel tables, threads.",
    "doctor": "What is wrong with a network, its images and its labels.",
    "analyze": "Where a configuration loses accuracy: error per layer and step.",
    "tune": "Weights that lose less in a cheap configuration, from images without labels.",
    "explain": "Which layers lose an object, and what brings it back.",
    "compare": "Differences between finished runs.",
    "pick": "The configuration of a sweep that fits budgets, from what is measured.",
    "list": "Which results and sweeps there are.",
    "report": "One HTML page that explains runs or a sweep.",
    "import": "A model of another program as a .cfg whose layers take precisions.",
    "export": "The chosen configuration as a ready .cfg, or for another engine.",
    "targets": "What can be exported to what, and why not.",
    "info": "This machine: CPU features, kernels, compiler, versions.",
    "download": "Fetch official weights.",
    "completion": "What a shell needs to complete commands and file names.",
    "demo": "The main job on a packaged network.",
}


class _ReaderGone(Exception):
    """The end of a pipe's reader. Click would leave with 1 for a BrokenPipeError, which means a failed check here."""


@contextlib.contextmanager
def _pipes_past_click() -> Iterator[None]:
    """Let the end of a pipe's reader pass Click. Raises: _ReaderGone."""
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderGone from error


class LazyGroup(click.Group):
    """A group that imports a command's file only when the command is called, so that start-up stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name, imported when it is asked for; None when there is none."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"mpnet.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Make the context of a command line, as Click does; help is printed meanwhile. Raises: _ReaderGone."""
        with _pipes_past_click():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, as Click does. Raises: _ReaderGone."""
        with _pipes_past_click():
            return super().invoke(ctx)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command. Raises: click.UsageError with a hint for an unknown one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(COMMANDS)}"
            raise click.UsageError(f"no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands into the help, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Example: mpnet run experiments/demo.yaml",
)
@click.version_option(__version__, prog_name="mpnet")
def cli() -> None:
    """Which layers of a detector may run in int8 or fp16, and what each choice costs."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line `arguments` (default: the program's own) and leave with its exit code."""
    _open_streams()
    # Decoders would print remarks of their own about damaged files; ours is the one line that says what to do.
    os.environ.setdefault("OPENCV_LOG_LEVEL", "OFF")
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    # Raising, unlike the default of dying at once, lets half-written files be removed.
    handle_signals()
    left = _QuickExit() if arguments is None else None
    try:
        code = _run(arguments)
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            code = code or 141
            _silence(sys.stdout)
        except OSError as error:
            code = fail(f"standard output: {describe_os_error(error)}")
            _silence(sys.stdout)
        sys.exit(code)
    except SystemExit as leaving:
        if left is not None and isinstance(leaving.code, int):
            left.code = leaving.code
        raise


class _QuickExit:
    """Leaves without taking the interpreter apart, which costs a tenth of the time of looking at one image.

    Registered before everything else, so it is called last: threads have ended then, other handlers have run.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        atexit.register(self._leave, os.getpid())

    def _leave(self, process: int) -> None:
        if process != os.getpid():  # a child that was forked
            return
        if self.code is None:  # a signal ended the program outside of `main`: the interpreter knows with which status
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(self.code)


def _run(arguments: Sequence[str] | None) -> int:
    return guarded(
        lambda: cli.main(args=None if arguments is None else list(arguments), prog_name="mpnet", standalone_mode=False)
    )


@contextlib.contextmanager
def _fallbacks_as_remarks() -> Iterator[None]:
    """Print each FallbackWarning once, as a remark, meanwhile; other warnings go their way."""
    with warnings.catch_warnings():
        show_warning = warnings.showwarning
        printed: set[str] = set()

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if not issubclass(category, FallbackWarning):
                show_warning(message, category, *place, **more)
            elif str(message) not in printed:
                printed.add(str(message))
                note(str(message))

        warnings.simplefilter("always", FallbackWarning)
        warnings.showwarning = show
        yield


def guarded(call: Callable[[], object]) -> int:
    """Call something; every failure that can be foreseen is one line on standard error. Returns the exit code."""
    try:
        with _fallbacks_as_remarks():
            result = call()
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "mpnet"
        return fail(f"{error.format_message()} (see {path} --help)")
    except click.ClickException as error:
        return fail(error.format_message())
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("interrupted\n")
        return 130
    except (BrokenPipeError, _ReaderGone):
        _silence(sys.stdout)
        return 141
    except MpnetError as error:
        return fail(str(error))
    except InternalError as error:
        fail(str(error))
        return 3
    except MemoryError:
        return fail(OUT_OF_MEMORY)
    except ModuleNotFoundError as error:
        return fail(describe_missing(error.name or str(error)))
    except ImportError as error:
        return fail(f"{error}; install mpnet anew, with the packages that it needs: pip install --force-reinstall .")
    except OSError as error:
        return fail(describe_os_error(error))
    except Exception as error:
        if _lacks_memory(error) or _lacks_memory(error.__cause__):
            return fail(OUT_OF_MEMORY)
        raise


OUT_OF_MEMORY = "out of memory; use a smaller runtime.batch, fewer workers or a smaller network"


def _lacks_memory(error: BaseException | None) -> bool:
    """Return whether an error is a lack of memory, which OpenCV says in an error of its own while it draws."""
    return isinstance(error, MemoryError) or (type(error).__module__ == "cv2" and "alloc" in str(error))


# Packages that only some commands need, and what brings them: an installation for a board may lack them.
_BRINGS = {
    "jinja2": "mpnet[report]",
    "markupsafe": "mpnet[report]",
    "cv2": "opencv-python-headless",
    "yaml": "PyYAML",
    "rich": "rich",
    "optuna": "mpnet[search]",
    "distributed": "mpnet[dask]",
    "dask": "mpnet[dask]",
}


def describe_missing(module: str) -> str:
    """Say what to install for a module that is not there."""
    top = module.partition(".")[0]
    if top not in _BRINGS:
        return f"the Python module {module!r} is missing; install mpnet anew, with all that it needs: pip install mpnet"
    return f"this needs {top}, which is not installed; pip install '{_BRINGS[top]}'"


def describe_os_error(error: OSError) -> str:
    """Say what the system refused, where, and what helps."""
    reason = error.strerror or str(error) or type(error).__name__
    remedy = {
        errno.ENOSPC: "free some space or choose another folder",
        errno.EDQUOT: "free some space or choose another folder",
        errno.EACCES: "check its permissions or choose another folder",
        errno.EPERM: "check its permissions or choose another folder",
        errno.EROFS: "choose a folder that can be written to",
        errno.ENOENT: "check the path",
        errno.ENOTDIR: "check the path",
        errno.EISDIR: "name a file",
        errno.EEXIST: "choose another name",
    }.get(error.errno or 0, "check the path and the disk")
    prefix = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
    return f"{prefix}{reason}; {remedy}"


def _open_streams() -> None:
    """Make standard streams take any text: what was closed leads nowhere, and half characters are escaped."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            try:
                os.fstat(number)
            except OSError:  # the next file that is opened would be taken for it
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
        elif number and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _silence(stream: IO[str]) -> None:
    """Redirect a closed pipe to nothing, so that the interpreter's own flush at exit stays quiet."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main()
