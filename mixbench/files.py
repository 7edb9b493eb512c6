# SPDX-License-Identifier: MIT
"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from mixbench.errors import BenchmarkError


def write_text(path: Path, text: str) -> None:
    """Write a whole file of UTF-8 text: beside its place, then renamed. Raises: BenchmarkError where it cannot be written."""
    part = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".part")
        with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        # What mkstemp makes is private; results are for everyone whom the umask allows.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(part, 0o666 & ~mask)
        os.replace(part, path)
        part = None
    except OSError as error:
        reason = error.strerror or error
        raise BenchmarkError(f"{_shown_path(path)}: cannot be written ({reason}); choose another place") from None
    finally:
        if part is not None:
            with contextlib.suppress(OSError):
                os.unlink(part)


def _shown_path(path: Path) -> str:
    """Show a path in a message: as it is, or quoted and escaped where it holds line breaks and the like."""
    text = str(path)
    return text if text.isprintable() else ascii(text)
