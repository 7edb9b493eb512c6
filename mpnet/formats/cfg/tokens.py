# SPDX-License-Identifier: MIT
"""A Darknet cfg as sections of typed keys, each with its line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any, Iterable, NoReturn, TypeVar

from mpnet.errors import FormatError
from mpnet.formats.documents.values import is_integer, typed
from mpnet.formats.files.foreign import foreign_content, foreign_model
from mpnet.model.keys import Key

MAX_CFG_BYTES = 1 << 20
MAX_LINE_CHARACTERS = 4096
MAX_SECTIONS = 1001
MAX_LIST_ITEMS = 1000
_BIT = Key("integer", low=0, high=1)
_Default = TypeVar("_Default")


class ShapeError(FormatError):
    """Layers that do not fit together, which may be due to any line before."""


@dataclass
class Entry:
    """One `key=value` line. commented: a comment follows, which Darknet would take for a part of the value."""

    value: str
    line: int
    used: bool = False
    commented: bool = False


@dataclass
class CfgSection:
    """One `[name]` with its keys.

    Reading a key through a method marks it as used. asked: keys that were looked for. read: files that its keys name.
    """

    name: str
    line: int
    source: str
    entries: dict[str, Entry] = field(default_factory=dict)
    repeated: list[tuple[str, Entry]] = field(default_factory=list)
    read: list[bytes] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)

    def fail(self, message: str, key: str | None = None) -> NoReturn:
        """Raise FormatError at the key's line, or at the section's."""
        raise FormatError(f"{self._location(key)}: {message}")

    def misfit(self, message: str, key: str | None = None) -> NoReturn:
        """Raise ShapeError at the key's line, or at the section's."""
        raise ShapeError(f"{self._location(key)}: {message}")

    def _location(self, key: str | None) -> str:
        line = self.entries[key].line if key is not None and key in self.entries else self.line
        return f"{self.source}:{line}"

    def text(self, key: str) -> str | None:
        """Return the raw value, or None when the key is absent."""
        self.asked.add(key)
        entry = self.entries.get(key)
        if entry is None:
            return None
        entry.used = True
        return entry.value

    def value(self, name: str, key: Key, default: _Default) -> str | int | float | _Default:
        """Return the value of a key, by what it may hold; flags are 0 or 1, or one of their words."""
        text = self.text(name)
        if text is None:
            return default
        if key.kind != "flag":
            return self._typed(name, text, key)
        if text in key.choices:
            return text
        if key.choices and text not in ("0", "1"):
            self.fail(f"{name}={shorten(text)} is not supported; use 0, 1, {', '.join(key.choices)}", name)
        return bool(self._typed(name, text, _BIT))

    def fields_of(self, declared: type) -> dict[str, Any]:
        """Return what the section says of the keys that a dataclass declares for cfg files, by field, defaults included."""
        values: dict[str, Any] = {}
        for declared_field in fields(declared):
            key = declared_field.metadata.get("key")
            if key is not None and key.kind == "section":
                values[declared_field.name] = key.of(**self.fields_of(key.of))
            elif key is not None and key.cfg:
                values[declared_field.name] = self.value(key.cfg, key, declared_field.default)
        return values

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        """Return a whole number in [low, high]."""
        return int(self.value(key, Key("integer", low=low, high=high), default))

    def word(self, key: str, words: Iterable[str], default: str) -> str:
        """Return the value of a key that holds one of some words."""
        return str(self.value(key, Key("text", tuple(words)), default))

    def flag(self, key: str, default: bool) -> bool:
        """Return the value of a key that is 0 or 1."""
        return bool(self.value(key, Key("flag"), default))

    def integers(self, key: str, low: int, high: int) -> tuple[int, ...]:
        """Return a list of whole numbers, empty when the key is absent."""
        return tuple(int(value) for value in self._list(key, Key("integer", low=low, high=high)))

    def reals(self, key: str, low: float, high: float) -> tuple[float, ...]:
        """Return a list of finite numbers, empty when the key is absent."""
        return tuple(float(value) for value in self._list(key, Key("number", low=low, high=high)))

    def _list(self, name: str, key: Key) -> tuple[str | int | float, ...]:
        text = self.text(name)
        items = [] if text is None else text.split(",")
        if len(items) > 1 and not items[-1]:
            items.pop()
        if len(items) > MAX_LIST_ITEMS:
            self.fail(f"{name} lists {len(items)} numbers; the limit is {MAX_LIST_ITEMS}", name)
        return tuple(self._typed(name, item, key) for item in items)

    def _typed(self, name: str, text: str, key: Key) -> str | int | float:
        try:
            return typed(text, key)
        except ValueError as expectation:
            if key.choices:
                self.fail(f"{name}={shorten(text)} is not supported; use {expectation}", name)
            if key.kind == "integer" and is_integer(text):
                self.fail(f"{name}={int(text)} is out of range; use {key.low} to {key.high}", name)
            self.fail(f"{name}={shorten(text)} is not {expectation}", name)


def shorten(text: str, limit: int = 40) -> str:
    """Shorten a text for a message: printable, not too long."""
    clean = "".join(c if c.isprintable() else "?" for c in text[: limit + 1])
    return clean if len(clean) <= limit else clean[:limit] + "..."


def tokenize(content: bytes, source: str) -> list[CfgSection]:
    """Split a cfg into sections.

    Blanks within a line are ignored as Darknet does; `#` and `;` begin a comment.

    Raises: FormatError for what is no cfg: binary content, keys before the first section, lines without `=`.
    """
    foreign = foreign_content(content)
    if foreign:
        raise FormatError(f"{source}: is {foreign}")
    if b"\0" in content:
        foreign = foreign_model(source) or "this is a binary file, not a cfg (are cfg and weights swapped?)"
        raise FormatError(f"{source}: {foreign}")
    sections: list[CfgSection] = []
    # Latin-1 keeps every byte: comments may be in any encoding, what counts is ASCII.
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", content.decode("latin-1")), 1):
        if len(raw) > MAX_LINE_CHARACTERS:
            raise FormatError(f"{source}:{number}: a line of {len(raw)} characters; the limit is {MAX_LINE_CHARACTERS}")
        text, *comment = re.split("[#;]", raw, maxsplit=1)
        line = "".join(text.split())
        if not line:
            continue
        if line.startswith("["):
            if not line.endswith("]") or len(line) < 3:
                raise FormatError(f"{source}:{number}: {shorten(line)!r} is no section header; write [name]")
            if len(sections) == MAX_SECTIONS:
                raise FormatError(f"{source}:{number}: more than {MAX_SECTIONS - 1} layers")
            sections.append(CfgSection(line[1:-1], number, source))
            continue
        key, equals, value = line.partition("=")
        if not equals or not key or not value:
            raise FormatError(f"{source}:{number}: {shorten(line)!r} is neither [section] nor key=value")
        if not sections:
            raise FormatError(f"{source}:{number}: {shorten(line)!r} stands before the first section; begin with [net]")
        section = sections[-1]
        entry = Entry(value, number, commented=bool(comment))
        if key in section.entries:
            section.repeated.append((key, entry))
        else:
            section.entries[key] = entry
    return sections
