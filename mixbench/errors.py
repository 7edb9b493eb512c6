# SPDX-License-Identifier: MIT
"""The error that mixbench raises on purpose, and what its parts that run networks need."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from typing import Iterator


class BenchmarkError(ValueError):
    """What a user can cause and mend: one line with place, value and remedy. The commands print it and end with exit code 2."""


def require_mpnet(part: str) -> None:
    """Check that mpnet is installed, which the parts of mixbench that run networks and mpnet's own strategies import.

    part: what needs it, for the message. Raises: BenchmarkError.
    """
    if find_spec("mpnet") is None:
        raise BenchmarkError(f"{part}: needs mpnet, which is not installed; pip install . in the root of its sources")


@contextmanager
def benchmark_errors() -> Iterator[None]:
    """Raise mpnet's errors as BenchmarkError, with the same line."""
    from mpnet.errors import MpnetError  # where it runs networks or strategies, mpnet is there

    try:
        yield
    except MpnetError as error:
        raise BenchmarkError(str(error)) from error


def shown(value: object) -> str:
    """Show a value in a message: one line, at most 60 characters."""
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
