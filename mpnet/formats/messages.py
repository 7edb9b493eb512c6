"""Values and places inside error messages, which are one line whatever a file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def shown(value: Any) -> str:
    """A value for a message: one line, at most 60 characters."""
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def named(path: Path | str) -> str:
    """A path for a message: as it is, or quoted and escaped when it holds line breaks and the like."""
    text = str(path)
    return text if text.isprintable() else ascii(text)
