# SPDX-License-Identifier: MIT
"""YAML text -> a small tree that knows its lines, safely: bounded size and depth, no aliases, tags or repeated keys.

Scalars stay text: what a value means is decided by the key that it stands at, so that `012`, `on` and `1e-3` are
what their author meant and not what YAML 1.1 makes of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Iterator

import yaml

from mpnet.errors import ConfigError
from mpnet.formats.files.bounded import decode_text, read_bounded
from mpnet.messages import named, shown

MAX_BYTES = 256 * 1024
MAX_DEPTH = 16
MAX_NODES = 20_000

_PLAIN_TAGS = (None, "!")


@dataclass(frozen=True)
class Scalar:
    """One value. plain: written without quotes."""

    text: str
    plain: bool
    location: str


@dataclass
class Sequence:
    """A list of values in a YAML file."""

    location: str
    items: list[Scalar | Sequence | Mapping] = field(default_factory=list)


@dataclass
class Mapping:
    """Keys with values, in the order of the file; key_locations: where each key stands."""

    location: str
    items: dict[str, Scalar | Sequence | Mapping] = field(default_factory=dict)
    key_locations: dict[str, str] = field(default_factory=dict)


Node = Scalar | Sequence | Mapping


def read_yaml_file(path: Path, what: str = "experiment file") -> Node:
    """Read the tree of one YAML file. what: for messages. Raises: ConfigError naming file and line."""
    data = read_bounded(path, MAX_BYTES, what, ConfigError, "name a readable YAML file")
    return parse_yaml(data, named(path))


def parse_yaml(data: bytes | str, source: str, numbered: bool = True) -> Node:
    """Parse the tree of a YAML document; messages name `source` and, when `numbered`, the line. Raises: ConfigError."""

    def location_of(lines_before: int) -> str:
        return f"{source}:{lines_before + 1}" if numbered else source

    try:
        content = decode_text(data) if isinstance(data, bytes) else data
        return _build(yaml.parse(content, Loader=yaml.SafeLoader), source, location_of)
    except ConfigError:
        raise
    except UnicodeDecodeError as error:
        where = location_of(error.object[: error.start].count(b"\n"))
        raise ConfigError(f"{where}: is not UTF-8 text; save it as UTF-8") from None
    except yaml.reader.ReaderError as error:
        where = location_of(content.count("\n", 0, error.position))
        raise ConfigError(f"{where}: character {error.character!r} is not allowed in YAML; remove it") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where, problem = location_of(mark.line if mark else 0), error.problem or error.context
        raise ConfigError(f"{where}: is not valid YAML: {problem}; mend that line") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: is not valid YAML: {str(error).splitlines()[0]}") from None
    except (ValueError, OverflowError) as error:
        # PyYAML lets these through for escapes such as "\UFFFFFFFF".
        raise ConfigError(f"{source}: is not valid YAML: {error}") from None


def _build(events: Iterator[yaml.Event], source: str, location_of: Callable[[int], str]) -> Node:
    """Build the tree without recursion, so that nesting can cost neither stack nor time."""
    root: Node | None = None
    stack: list[tuple[Mapping | Sequence, list[Scalar]]] = []  # each with the key that waits for its value
    documents = count = 0
    for event in events:
        location = location_of(event.start_mark.line) if event.start_mark else source
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise ConfigError(f"{location}: a second document starts here; an experiment is one document")
            continue
        if isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            stack.pop()
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        count += 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise ConfigError(f'{location}: anchors and aliases (&, *) are not read; quote globs such as "*/yolo-1"')
        if count > MAX_NODES:
            raise ConfigError(f"{location}: holds more than {MAX_NODES} values; an experiment needs far fewer")
        tag = getattr(event, "tag", None)
        if tag not in _PLAIN_TAGS:
            raise ConfigError(f"{location}: tag {shown(str(tag))} is not read; write the value plainly")
        node: Node
        if isinstance(event, yaml.ScalarEvent):
            node = Scalar(event.value, event.style is None, location)
        elif isinstance(event, yaml.MappingStartEvent):
            node = Mapping(location)
        else:
            node = Sequence(location)
        if stack:
            _attach(stack[-1], node)
        else:
            root = node
        if not isinstance(node, Scalar):
            if len(stack) >= MAX_DEPTH:
                raise ConfigError(f"{location}: is nested more than {MAX_DEPTH} deep; an experiment needs 5")
            stack.append((node, []))
    if root is None:
        raise ConfigError(f"{source}: is empty; see docs/experiments.md for the keys")
    return root


def _attach(top: tuple[Mapping | Sequence, list[Scalar]], node: Node) -> None:
    parent, waiting = top
    if isinstance(parent, Sequence):
        parent.items.append(node)
    elif waiting:
        key = waiting.pop()
        parent.items[key.text] = node
        parent.key_locations[key.text] = key.location
    else:
        if not isinstance(node, Scalar):
            raise ConfigError(f"{node.location}: a list or mapping stands where a key should; quote the key")
        if node.text in parent.items:
            first = parent.key_locations[node.text].rpartition(":")[2]
            raise ConfigError(f"{node.location}: key {shown(node.text)} is given twice (first in line {first}); keep one")
        waiting.append(node)
