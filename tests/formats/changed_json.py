# SPDX-License-Identifier: MIT
"""JSON documents with a value of another type in one place."""

from __future__ import annotations

from typing import Any, Iterator


def paths_of(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a JSON document, that of the whole first."""
    yield path
    if isinstance(document, (dict, list)):
        for key, value in document.items() if isinstance(document, dict) else enumerate(document):
            yield from paths_of(value, (*path, key))


def replace_at(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = document.copy()
    copy[path[0]] = replace_at(document[path[0]], path[1:], value)
    return copy
