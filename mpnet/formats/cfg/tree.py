# SPDX-License-Identifier: MIT
"""Files that a cfg names: trees of classes and maps of their nodes."""

from __future__ import annotations

import re
from pathlib import Path

from mpnet.errors import FormatError
from mpnet.formats.cfg.tokens import CfgSection, shorten
from mpnet.formats.files.bounded import read_bounded
from mpnet.model.tree import Tree

MAX_TREE_BYTES = 1 << 24
MAX_NODES = 65536


def _read(section: CfgSection, key: str) -> tuple[Path, str] | None:
    """Return (path, text) of the file that a key names: beside the cfg, one folder above, or where the process runs."""
    name = section.text(key)
    if name is None:
        return None
    folder = Path(section.source).parent
    for path in (folder / name, folder.parent / name, Path(name)):
        if path.is_file():
            content = read_bounded(path, MAX_TREE_BYTES, key)
            section.read.append(content)
            return path, content.decode("latin-1")
    section.fail(f"{key}={shorten(name)} is no file beside the cfg, one folder above it or here; put it there", key)


def read_tree(section: CfgSection, key: str) -> Tree | None:
    """Return the tree that a key names, None when it is absent. A line is `name parent`; parents come first, roots have -1."""
    file = _read(section, key)
    if file is None:
        return None
    path, text = file
    parents: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        match = re.fullmatch(r"\s*\S+\s+(-?\d{1,6})\s*", line)
        parent = int(match[1]) if match else -2
        if not -1 <= parent < len(parents):
            raise FormatError(f"{path}:{number}: {shorten(line)!r} is no `name parent` with an earlier line as parent, or -1")
        parents.append(parent)
        if len(parents) > MAX_NODES:
            raise FormatError(f"{path}:{number}: more than {MAX_NODES} nodes")
    if not parents:
        raise FormatError(f"{path}: the tree has no node")
    return Tree(tuple(parents))


def read_map(section: CfgSection, key: str, tree: Tree | None) -> tuple[int, ...]:
    """Return the node of each class that a map file lists, one a line; () when the key is absent or there is no tree."""
    file = _read(section, key) if tree is not None else None
    if file is None or tree is None:
        section.text(key)
        return ()
    path, text = file
    nodes = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        if not re.fullmatch(r"\s*\d{1,6}\s*", line) or int(line) >= len(tree):
            raise FormatError(f"{path}:{number}: {shorten(line)!r} is no node of the tree, 0 to {len(tree) - 1}")
        nodes.append(int(line))
    return tuple(nodes)
