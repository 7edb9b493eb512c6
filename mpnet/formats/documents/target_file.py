# SPDX-License-Identifier: MIT
"""Target files -> TargetFile: those that come with mpnet, by name, and a user's own, by path."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cache
from importlib import resources
from pathlib import Path

from mpnet.config.target_file import GROUPS, KINDS, TargetFile
from mpnet.errors import ConfigError
from mpnet.formats.documents.yaml_section import mapping, nearest, read_section
from mpnet.formats.documents.yaml_tree import Mapping, Node, parse_yaml, read_yaml_file
from mpnet.messages import shown

SUFFIXES = (".yaml", ".yml")
_FOLDER = resources.files("mpnet.formats.documents") / "targets"


def is_path(name: str) -> bool:
    """Return whether a target is named by its file."""
    return Path(name).suffix.lower() in SUFFIXES


@cache
def target_names() -> tuple[str, ...]:
    """Return the names of the target files that come with mpnet, in order."""
    return tuple(sorted(Path(file.name).stem for file in _FOLDER.iterdir() if file.name.endswith(".yaml")))


@cache
def bundled_target(name: str) -> TargetFile:
    """Return the target file of mpnet's own called `name`. Raises: ConfigError with the nearest name."""
    if name not in target_names():
        raise ConfigError(f"target {shown(name)} is unknown{nearest(name, target_names())}; a file of your own ends in .yaml")
    return parse_target((_FOLDER / f"{name}.yaml").read_bytes(), f"{name}.yaml", name)


def target_file(name: str) -> TargetFile:
    """Return the target file that a name or a path means.

    Raises: ConfigError, one line: for an unknown name, or with file and line for what a file may not say.
    """
    if not is_path(name):
        return bundled_target(name)
    return _target(read_yaml_file(Path(name), "target file"), name)


def parse_target(data: bytes | str, source: str, name: str) -> TargetFile:
    """Parse a target file. source: for messages. Raises: ConfigError with `source` and line."""
    return _target(parse_yaml(data, source), name)


def _target(root: Node, name: str) -> TargetFile:
    tree = mapping(root, "the file")
    target = read_section(TargetFile, tree, "", Path())
    for word, location in _keys(tree, "layers").items():
        if word not in (*KINDS, *GROUPS):
            raise ConfigError(f"{location}: layers names {shown(word)}{nearest(word, (*KINDS, *GROUPS))}")
    if target.read:
        try:
            date.fromisoformat(target.read)
        except ValueError:
            location = tree.items["read"].location
            raise ConfigError(f"{location}: read is {shown(target.read)}; it must be a day such as 2026-11-28") from None
    return replace(target, name=name)


def _keys(tree: Mapping, key: str) -> dict[str, str]:
    node = tree.items.get(key)
    return node.key_locations if isinstance(node, Mapping) else {}
