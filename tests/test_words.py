# SPDX-License-Identifier: MIT
"""Names are the field's words: those that said nothing, or had a word in the field, are gone."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Iterator

# What a value is, or the field's term, takes the place of each: docs/architecture.md, internal terms.
GONE = frozenset(
    (
        "found",
        "own",
        "place",
        "places",
        "said",
        "told",
        "slight",
        "fate",
        "fates",
        "lesson",
        "lessons",
        "taught",
        "picture",
        "pictures",
        "haste",
        "workforce",
        "hire",
    )
)
# Names that stored files and identities have.
STORED = {"config/identity.py": {"lessons"}, "trial/workbench.py": {"lessons"}}
# Rooms and modules whose names are still to be replaced.
OPEN = frozenset(("importing",))


def names_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of every name that a file gives to something or uses."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name


def test_words_that_are_gone_stay_away(repository: Path) -> None:
    root = repository / "mpnet"
    left = []
    for path in sorted(root.rglob("*.py")):
        module = path.relative_to(root)
        allowed = STORED.get(module.as_posix(), set())
        if module.parts[0] not in OPEN:
            left += [
                f"{path}:{line}: {name}"
                for line, name in names_in(ast.parse(path.read_text(encoding="utf-8")))
                if name.lower().strip("_") in GONE - allowed
            ]
    assert left == []
