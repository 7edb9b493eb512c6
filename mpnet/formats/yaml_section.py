"""One mapping of an experiment file, read key by key with the type that each key has."""

from __future__ import annotations

import difflib
import math
import re
from pathlib import Path
from typing import Iterable, Sequence

from mpnet.errors import ConfigError
from mpnet.formats.yaml_tree import Mapping, Node, Scalar, shown
from mpnet.formats.yaml_tree import Sequence as ListNode

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}\Z")
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}
_NULL = {"", "~", "null", "none"}


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint such as `; did you mean 'int8'?`, or the list of known names when none is near."""
    known = list(known)
    found = difflib.get_close_matches(name[:80], known, n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else f"; known are {', '.join(known)}"


class Section:
    """A mapping with the names of its keys checked. `path` is its dotted name, empty for the whole file."""

    def __init__(self, node: Node, path: str, known: Sequence[str]) -> None:
        self.path = path
        self.node = mapping(node, path or "the file")
        for key, place in self.node.key_places.items():
            if key not in known:
                where = f" in {path!r}" if path else ""
                raise ConfigError(f"{place}: unknown key {shown(key)}{where}{nearest(key, known)}")

    def name(self, key: str) -> str:
        """The dotted name of a key, for messages."""
        return f"{self.path}.{key}" if self.path else key

    def node_of(self, key: str) -> Node | None:
        """The value of `key`, or None when it is absent or null."""
        node = self.node.items.get(key)
        if isinstance(node, Scalar) and node.plain and node.text.lower() in _NULL:
            # `resize:` with nothing behind it is an oversight; `limit: null` says "none" on purpose.
            if node.text == "":
                raise ConfigError(f"{node.place}: {self.name(key)} has no value; give one or remove the key")
            return None
        return node

    def missing(self, key: str) -> ConfigError:
        """The error for a key that must be there."""
        return ConfigError(f"{self.node.place}: key {self.name(key)!r} is missing; see docs/experiments.md")

    def text(self, key: str, choices: Sequence[str] = ()) -> str | None:
        """A word or a sentence; one of `choices` when there are any."""
        node = self.node_of(key)
        return None if node is None else text(node, self.name(key), choices)

    def number(self, key: str, low: float = -math.inf, high: float = math.inf) -> float | None:
        """A finite number in [low, high]."""
        node = self.node_of(key)
        if node is None:
            return None
        written = text(node, self.name(key))
        try:
            value = float(written)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and low <= value <= high) or "_" in written:
            raise ConfigError(
                f"{node.place}: {self.name(key)} is {shown(written)}; it must be a number{_range(low, high)}"
            )
        return value

    def integer(self, key: str, low: int, high: int = 2**62) -> int | None:
        """A whole number in [low, high]."""
        node = self.node_of(key)
        if node is None:
            return None
        written = text(node, self.name(key))
        if not _INTEGER.match(written) or not low <= int(written) <= high:
            raise ConfigError(
                f"{node.place}: {self.name(key)} is {shown(written)}; it must be a whole number{_range(low, high)}"
            )
        return int(written)

    def flag(self, key: str) -> bool | None:
        """true or false."""
        node = self.node_of(key)
        if node is None:
            return None
        written = text(node, self.name(key))
        if written.lower() in _TRUE:
            return True
        if written.lower() in _FALSE:
            return False
        raise ConfigError(f"{node.place}: {self.name(key)} is {shown(written)}; it must be true or false")

    def texts(self, key: str, choices: Sequence[str] = ()) -> tuple[str, ...] | None:
        """A list of words, not empty and each once."""
        node = self.node_of(key)
        return None if node is None else texts(node, self.name(key), choices)

    def path_of(self, key: str, base: Path) -> Path | None:
        """A file or folder, relative to `base`."""
        written = self.text(key)
        if written is None:
            return None
        if "\0" in written or not written.strip():
            raise ConfigError(f"{self.node.items[key].place}: {self.name(key)} is {shown(written)}; it must be a path")
        return base / Path(written)

    def section(self, key: str, known: Sequence[str]) -> Section | None:
        """A mapping within this one."""
        node = self.node_of(key)
        return None if node is None else Section(node, self.name(key), known)


def mapping(node: Node, name: str) -> Mapping:
    """`node` as a mapping, or the error that says what it is instead."""
    if not isinstance(node, Mapping):
        what = "a list" if isinstance(node, ListNode) else shown(node.text)
        raise ConfigError(f"{node.place}: {name} is {what}; it must hold `key: value` pairs")
    return node


def text(node: Node, name: str, choices: Sequence[str] = ()) -> str:
    """`node` as one value, among `choices` when there are any."""
    if not isinstance(node, Scalar):
        what = "a list" if isinstance(node, ListNode) else "a mapping"
        raise ConfigError(f"{node.place}: {name} is {what}; it must be one value")
    if choices and node.text not in choices:
        raise ConfigError(f"{node.place}: {name} is {shown(node.text)}{nearest(node.text, choices)}")
    return node.text


def texts(node: Node, name: str, choices: Sequence[str] = ()) -> tuple[str, ...]:
    """`node` as a list of values; a single value counts as a list of one."""
    items = node.items if isinstance(node, ListNode) else [node]
    values = tuple(text(item, name, choices) for item in items)
    if not values:
        raise ConfigError(f"{node.place}: {name} is an empty list; name at least one")
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ConfigError(f"{items[position].place}: {name} names {shown(value)} twice; keep one")
    return values


def _range(low: float, high: float) -> str:
    if math.isinf(low) and math.isinf(high):
        return ""
    if math.isinf(high) or high >= 2**62:
        return f" of at least {low:g}"
    return f" from {low:g} to {high:g}"
