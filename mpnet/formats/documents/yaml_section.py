# SPDX-License-Identifier: MIT
"""A mapping of an experiment file -> the dataclass that declares its keys."""

from __future__ import annotations

import difflib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Iterable, TypeVar

from mpnet.config.experiment import OptionRange
from mpnet.errors import ConfigError
from mpnet.formats.documents.values import typed
from mpnet.formats.documents.yaml_tree import Mapping, Node, Scalar, Sequence
from mpnet.formats.files.paths import without_detours
from mpnet.messages import shown
from mpnet.model.keys import Key, Metadata, keys_of, names_of, paths_of
from mpnet.model.quantization import QuantizationOptions

_NULL = {"", "~", "null", "none"}
_OPTIONS = tuple(paths_of(QuantizationOptions))
_ANY = Key("text")
_Declared = TypeVar("_Declared")


def read_section(declared: type[_Declared], node: Node, path: str, base: Path) -> _Declared:
    """Read what a mapping says, with the defaults where it says nothing.

    path: dotted name of the mapping, '' for the whole file. base: the folder that paths count from.
    Raises: ConfigError with file and line.
    """
    section = mapping(node, path or "the file")
    known = names_of(declared)
    for key, location in section.key_locations.items():
        if key not in known:
            where = f" in {path!r}" if path else ""
            raise ConfigError(f"{location}: unknown key {shown(key)}{where}{nearest(key, known)}")
    return declared(**_field_values(declared, section, path, base))


def _field_values(declared: type | dict[str, Metadata], section: Mapping, path: str, base: Path) -> dict[str, object]:
    required = set()
    if isinstance(declared, type):
        required = {f.name for f in fields(declared) if f.default is MISSING and f.default_factory is MISSING}
    values: dict[str, object] = {}
    for field_name, key in keys_of(declared).items():
        name, node = f"{path}.{field_name}" if path else field_name, section.items.get(field_name)
        if key.kind == "inline":
            inline = _field_values(key.of, section, path, base)
            values[field_name] = key.of(**inline) if isinstance(key.of, type) else inline
        elif key.none and isinstance(node, Scalar) and node.text in (key.none, "null", "~"):
            values[field_name] = None
        elif node is not None and not _is_null(node, name):
            values[field_name] = value_of(node, name, key, base)
        elif field_name in required:
            raise missing(section, name)
    return values


def _is_null(node: Node, name: str) -> bool:
    if not (isinstance(node, Scalar) and node.plain and node.text.lower() in _NULL):
        return False
    # `resize:` with nothing behind it is an oversight; `limit: null` says "none" on purpose.
    if node.text == "":
        raise ConfigError(f"{node.location}: {name} has no value; give one or remove the key")
    return True


def missing(section: Mapping, name: str) -> ConfigError:
    """Return the error for a key that must be there."""
    return ConfigError(f"{section.location}: key {name!r} is missing; see docs/experiments.md")


def value_of(node: Node, name: str, key: Key, base: Path) -> object:
    """Return the value of one key. Raises: ConfigError with file and line."""
    if key.many:
        return _each_once(node, name, key, base)
    if key.kind == "section":
        if key.short and isinstance(node, Scalar):
            return key.of(**{key.short: value_of(node, name, keys_of(key.of)[key.short], base)})
        return read_section(key.of, node, name, base)
    if key.kind == "selectors":
        pairs = mapping(node, name).items.items()
        return tuple((selector, value_of(value, f"{name}.{selector}", key.of, base)) for selector, value in pairs)
    if key.kind == "groups":
        if isinstance(node, Scalar) and node.text == "none":
            return ()
        groups = node.items if isinstance(node, Sequence) else [node]
        return tuple(_each_once(group, name, _ANY, base) for group in groups)
    if key.kind == "options":
        return tuple(_option_range(path, value, name) for path, value in mapping(node, name).items.items())
    return _single(node, name, key, base)


def _single(node: Node, name: str, key: Key, base: Path) -> str | int | float | Path:
    if not isinstance(node, Scalar):
        what = "a list" if isinstance(node, Sequence) else "a mapping"
        raise ConfigError(f"{node.location}: {name} is {what}; it must be one value")
    written = f"{node.location}: {name} is {shown(node.text)}"
    if key.kind == "path":
        if "\0" in node.text or not node.text.strip():
            raise ConfigError(f"{written}; it must be a path")
        return without_detours(base / node.text)
    if key.kind == "text" and key.choices and node.text not in key.choices:
        raise ConfigError(f"{written}{nearest(node.text, key.choices)}")
    try:
        return typed(node.text, key)
    except ValueError as expectation:
        raise ConfigError(f"{written}; it must be {expectation}") from None


def _each_once(node: Node, name: str, key: Key, base: Path) -> tuple[str | int | float | Path, ...]:
    """Return a list of values; a single value counts as a list of one."""
    items = node.items if isinstance(node, Sequence) else [node]
    values = tuple(_single(item, name, key, base) for item in items)
    if not values:
        raise ConfigError(f"{node.location}: {name} is an empty list; name at least one")
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ConfigError(f"{items[position].location}: {name} names {shown(value)} twice; keep one")
    return values


def _option_range(path: str, value: Node, name: str) -> OptionRange:
    """Read one option of quantisation and the values that a sweep tries."""
    if path not in _OPTIONS:
        raise ConfigError(f"{value.location}: {name} varies {shown(path)}{nearest(path, _OPTIONS)}")
    values = tuple(map(str, _each_once(value, f"{name}.{path}", _ANY, Path())))
    options = []
    for written in values:
        node: Node = Scalar(written, True, value.location)
        for key in reversed(path.split(".")):
            node = Mapping(value.location, {key: node}, {key: value.location})
        options.append(read_section(QuantizationOptions, node, name, Path()))
    return OptionRange(path, values, tuple(options))


def mapping(node: Node, name: str) -> Mapping:
    """Return `node` as a mapping, or raise the error that says what it is instead."""
    if not isinstance(node, Mapping):
        what = "a list" if isinstance(node, Sequence) else shown(node.text)
        raise ConfigError(f"{node.location}: {name} is {what}; it must hold `key: value` pairs")
    return node


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint such as `; did you mean 'int8'?`, or the list of known names when none is near."""
    known = list(known)
    suggestions = difflib.get_close_matches(name[:80], known, n=1, cutoff=0.6)
    return f"; did you mean {suggestions[0]!r}?" if suggestions else f"; known are {', '.join(known)}"
