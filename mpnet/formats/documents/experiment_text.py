# SPDX-License-Identifier: MIT
"""An experiment as the text of a file that reads back as the same: what has its default is left out."""

from __future__ import annotations

import os
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Mapping

from mpnet.config.experiment import Experiment
from mpnet.formats.documents.experiment_writer import format_flow, quote_path
from mpnet.model.keys import Key, keys_of


def experiment_text(experiment: Experiment, base: Path) -> str:
    """Return the text of an experiment file; its paths count from the folder `base`, in which it is to lie."""
    return "".join(f"{name}: {format_flow(value)}\n" for name, value in _section(experiment, base).items())


def _section(section: Any, base: Path) -> dict[str, object]:
    """Return the keys of a dataclass that differ from their defaults, ready for `format_flow`."""
    defaults = {
        f.name: f.default if f.default is not MISSING else f.default_factory() if f.default_factory is not MISSING else MISSING
        for f in fields(section)
    }
    keys: dict[str, object] = {}
    for name, key in keys_of(type(section)).items():
        value = getattr(section, name)
        if key.kind == "inline":
            of_name = value if isinstance(value, Mapping) else _section(value, base)
            keys |= {inner: _plain(item) for inner, item in of_name.items()} if isinstance(value, Mapping) else of_name
        elif value != defaults[name]:
            keys[name] = _value(value, key, base)
    return keys


def _value(value: Any, key: Key, base: Path) -> object:
    """Return the value of one key, ready for `format_flow`."""
    if value is None:
        return key.none or "null"
    if key.kind == "section":
        return _section(value, base)
    if key.kind == "selectors":
        return {quote_path(selector): _value(item, key.of, base) for selector, item in value}
    if key.kind == "groups":
        return [[quote_path(selector) for selector in group] for group in value] or "none"
    if key.kind == "options":
        return {option.path: [quote_path(text) for text in option.values] for option in value}
    if key.many:
        return [_plain(item) for item in value]
    if key.kind == "path":
        return quote_path(os.path.relpath(Path(value).absolute(), base.absolute()))
    return _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else quote_path(str(value))
