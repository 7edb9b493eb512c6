# SPDX-License-Identifier: MIT
"""The values that a key of a file may hold, declared at the dataclass field that keeps it; the readers in formats follow it.

Experiment files: `nms: float = field(default=0.45, metadata=number(0, 1))`.
JSON documents: `notes: tuple[str, ...] = field(default=(), metadata=json_key(omit_default=True))`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from typing import Any, Literal, Mapping, Sequence

Metadata = Mapping[str, Any]
Kind = Literal["text", "integer", "number", "flag", "path", "section", "inline", "selectors", "groups", "options"]
LARGEST = 2**62


@dataclass(frozen=True)
class Key:
    """One key.

    kind:    text, integer, number, flag, path: one value. section: a mapping of the keys of the dataclass `of`; inline: those
             keys at this level. selectors: a mapping of selectors to `of`. groups: lists of texts. options: a mapping of
             paths of quantisation options to values.
    choices: of a text, () for any; of a flag, words that it may hold beside true and false. low, high: of numbers. many: a list
             of such values, each once.
    none:    a word that means None. short: the key of a section that one value without a mapping stands for.
    cfg:     its name in a cfg, '' when it has none.
    """

    kind: Kind
    choices: tuple[str, ...] = ()
    low: float = -inf
    high: float = inf
    many: bool = False
    none: str = ""
    short: str = ""
    cfg: str = ""
    of: Any = None

    @property
    def range(self) -> str:
        """Return the range for messages, such as ` from 0 to 1`; '' without bounds."""
        if self.low == -inf and self.high == inf:
            return ""
        low, high = (f"{b:g}" if self.kind == "number" else str(b) for b in (self.low, self.high))
        return f" of at least {low}" if self.high >= LARGEST else f" from {low} to {high}"


def text(**more: Any) -> Metadata:
    """Declare a key that holds any text."""
    return {"key": Key("text", **more)}


def word(choices: Sequence[str], **more: Any) -> Metadata:
    """Declare a key that holds one of some words; with `many` a list of them."""
    return {"key": Key("text", tuple(choices), **more)}


def integer(low: int, high: int = LARGEST, **more: Any) -> Metadata:
    """Declare a key that holds a whole number from low to high."""
    return {"key": Key("integer", low=low, high=high, **more)}


def number(low: float, high: float = inf, **more: Any) -> Metadata:
    """Declare a key that holds a finite number from low to high."""
    return {"key": Key("number", low=low, high=high, **more)}


def flag(*words: str, **more: Any) -> Metadata:
    """Declare a key that holds true or false, or one of some words."""
    return {"key": Key("flag", words, **more)}


def path() -> Metadata:
    """Declare a key that names a file or folder, relative to the file that names it."""
    return {"key": Key("path")}


def section(of: type, **more: Any) -> Metadata:
    """Declare a key that holds a mapping with the keys of a dataclass."""
    return {"key": Key("section", of=of, **more)}


def inline(of: type | Mapping[str, Metadata]) -> Metadata:
    """Declare the keys of a dataclass at this level; or those of a mapping, which are kept as one."""
    return {"key": Key("inline", of=of)}


def selectors(of: Metadata) -> Metadata:
    """Declare a key that holds a mapping of selectors to values, kept as pairs in their order."""
    return {"key": Key("selectors", of=of["key"])}


@dataclass(frozen=True)
class JsonKey:
    """The place of a field in a JSON document, where that is not plain from its name and type.

    name:         of the key, '' for the field's own name.
    omit_default: the key is left out where the field has its default value.
    inline:       the field is a mapping whose items stand at this level, beside the other keys; these are their names.
    required:     those of `inline` that every document has.
    """

    name: str = ""
    omit_default: bool = False
    inline: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


def json_key(
    name: str = "", *, omit_default: bool = False, inline: Sequence[str] = (), required: Sequence[str] = ()
) -> Metadata:
    """Return the metadata of a field whose place in a JSON document its name and type do not tell; see `JsonKey`."""
    return {"json": JsonKey(name, omit_default, tuple(dict.fromkeys((*required, *inline))), tuple(required))}


def keys_of(declared: type | Mapping[str, Metadata]) -> dict[str, Key]:
    """Return the keys that a dataclass (or a mapping of them) declares, by field, in their order."""
    if not isinstance(declared, type):
        return {name: metadata["key"] for name, metadata in declared.items()}
    return {f.name: f.metadata["key"] for f in fields(declared) if "key" in f.metadata}


def names_of(declared: type | Mapping[str, Metadata]) -> tuple[str, ...]:
    """Return the names that a mapping of a dataclass's keys may have."""
    return tuple(
        name
        for field_name, key in keys_of(declared).items()
        for name in (names_of(key.of) if key.kind == "inline" else (field_name,))
    )


def paths_of(declared: type | Mapping[str, Metadata], prefix: str = "") -> dict[str, Key]:
    """Return all keys by dotted name, of the sections below as well."""
    keys: dict[str, Key] = {}
    for name, key in keys_of(declared).items():
        if key.kind in ("section", "inline"):
            keys |= paths_of(key.of, f"{prefix}{name}." if key.kind == "section" else prefix)
        else:
            keys[prefix + name] = key
    return keys
