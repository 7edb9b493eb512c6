"""A Darknet cfg as sections of typed keys, each with its line."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import NoReturn, Sequence

from mpnet.errors import FormatError

MAX_CFG_BYTES = 1 << 20
MAX_LINE_CHARACTERS = 4096
MAX_SECTIONS = 1001
MAX_LIST_ITEMS = 1000
# Beyond this, text is no number that a network could mean, and int() need not try.
_MAX_DIGITS = 18
_INTEGER = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


@dataclass
class Entry:
    """One `key=value` line."""

    value: str
    line: int
    used: bool = False


@dataclass
class Section:
    """One `[name]` with its keys. Reading a key through a method marks it as used."""

    name: str
    line: int
    source: str
    entries: dict[str, Entry] = field(default_factory=dict)
    repeated: list[tuple[str, Entry]] = field(default_factory=list)

    def fail(self, message: str, key: str | None = None) -> NoReturn:
        """Raise FormatError at the key's line, or at the section's."""
        line = self.entries[key].line if key is not None and key in self.entries else self.line
        raise FormatError(f"{self.source}:{line}: {message}")

    def text(self, key: str) -> str | None:
        """The raw value, or None when the key is absent."""
        entry = self.entries.get(key)
        if entry is None:
            return None
        entry.used = True
        return entry.value

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number in [low, high]."""
        text = self.text(key)
        return default if text is None else self._integer(key, text, low, high)

    def flag(self, key: str, default: bool) -> bool:
        """0 or 1."""
        return bool(self.integer(key, int(default), 0, 1))

    def integers(self, key: str, low: int, high: int) -> tuple[int, ...]:
        """A list of whole numbers, empty when the key is absent."""
        return tuple(self._integer(key, item, low, high) for item in self._items(key))

    def real(self, key: str, default: float, low: float, high: float) -> float:
        """A finite number in [low, high]."""
        text = self.text(key)
        return default if text is None else self._real(key, text, low, high)

    def reals(self, key: str, low: float, high: float) -> tuple[float, ...]:
        """A list of finite numbers, empty when the key is absent."""
        return tuple(self._real(key, item, low, high) for item in self._items(key))

    def word(self, key: str, default: str, choices: Sequence[str]) -> str:
        """One of the given words."""
        text = self.text(key)
        if text is None:
            return default
        if text not in choices:
            self.fail(f"{key}={shorten(text)} is not supported; use one of {', '.join(choices)}", key)
        return text

    def _items(self, key: str) -> list[str]:
        text = self.text(key)
        if text is None:
            return []
        items = text.split(",")
        if len(items) > 1 and not items[-1]:
            items.pop()
        if len(items) > MAX_LIST_ITEMS:
            self.fail(f"{key} lists {len(items)} numbers; the limit is {MAX_LIST_ITEMS}", key)
        return items

    def _integer(self, key: str, text: str, low: int, high: int) -> int:
        if not _INTEGER.fullmatch(text) or len(text) > _MAX_DIGITS:
            self.fail(f"{key}={shorten(text)} is not a whole number from {low} to {high}", key)
        number = int(text)
        if not low <= number <= high:
            self.fail(f"{key}={number} is out of range; use {low} to {high}", key)
        return number

    def _real(self, key: str, text: str, low: float, high: float) -> float:
        number = float(text) if is_real(text) else math.nan
        if not low <= number <= high:
            self.fail(f"{key}={shorten(text)} is not a number from {low:g} to {high:g}", key)
        return number


def is_real(text: str) -> bool:
    """Whether the text is a number; float() would also take `nan`, `infinity` and `1_0`."""
    return _REAL.fullmatch(text) is not None


def shorten(text: str, limit: int = 40) -> str:
    """Text fit for a message: printable, not too long."""
    clean = "".join(c if c.isprintable() else "?" for c in text[: limit + 1])
    return clean if len(clean) <= limit else clean[:limit] + "..."


def tokenize(content: bytes, source: str) -> list[Section]:
    """The sections of a cfg. Blanks within a line are ignored as Darknet does; `#` and `;` begin a comment.

    Raises: FormatError for what is no cfg: binary content, keys before the first section, lines without `=`.
    """
    if b"\0" in content:
        raise FormatError(f"{source}: this is a binary file, not a cfg (are cfg and weights swapped?)")
    sections: list[Section] = []
    # Latin-1 keeps every byte: comments may be in any encoding, what counts is ASCII.
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", content.decode("latin-1")), 1):
        if len(raw) > MAX_LINE_CHARACTERS:
            raise FormatError(f"{source}:{number}: a line of {len(raw)} characters; the limit is {MAX_LINE_CHARACTERS}")
        line = re.split("[#;]", raw, maxsplit=1)[0]
        line = "".join(line.split())
        if not line:
            continue
        if line.startswith("["):
            if not line.endswith("]") or len(line) < 3:
                raise FormatError(f"{source}:{number}: {shorten(line)!r} is no section header; write [name]")
            if len(sections) == MAX_SECTIONS:
                raise FormatError(f"{source}:{number}: more than {MAX_SECTIONS - 1} layers")
            sections.append(Section(line[1:-1], number, source))
            continue
        key, equals, value = line.partition("=")
        if not equals or not key or not value:
            raise FormatError(f"{source}:{number}: {shorten(line)!r} is neither [section] nor key=value")
        if not sections:
            raise FormatError(f"{source}:{number}: {shorten(line)!r} stands before the first section; begin with [net]")
        section = sections[-1]
        entry = Entry(value, number)
        if key in section.entries:
            section.repeated.append((key, entry))
        else:
            section.entries[key] = entry
    return sections
