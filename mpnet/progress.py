# SPDX-License-Identifier: MIT
"""The protocol by which long work says how far it is, from the engine's callers to the command line."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Callable

Advance = Callable[[int], None]
"""Takes how many more pieces are done."""

Progress = Callable[[str, "int | None"], AbstractContextManager[Advance]]
"""Called with what is counted and how many there will be (None: nobody knows); work goes on inside the context."""


def unseen(count: int) -> None:
    """Do nothing: an Advance that nobody looks at."""


def silent(what: str, total: int | None) -> AbstractContextManager[Advance]:
    """Show nothing: a Progress that nobody looks at."""
    return nullcontext(unseen)
