# SPDX-License-Identifier: MIT
"""Values in the YAML of experiment files, as `mpnet init`, `import`, `export` and `analyze` write it."""

from __future__ import annotations

import json
import re
from typing import Mapping

from mpnet.model.quantization import QuantizationOptions

_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@+-]*")
"""Paths that YAML takes as they are."""


def quote(text: str) -> str:
    """Return a text in quotes, in ASCII whatever it holds."""
    return json.dumps(text)


def quote_path(path: str) -> str:
    """Return a path as it is where YAML reads it as that text, else in quotes that leave its letters readable."""
    return path if _PLAIN.fullmatch(path) and path.lower() not in ("null", "none") else json.dumps(path, ensure_ascii=False)


def format_flow(value: object) -> str:
    """Return a value on one line, at any depth; what is None in a mapping is left out.

    value: keys and texts are quoted already where they need it.
    """
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {format_flow(child)}' for key, child in value.items() if child is not None)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(format_flow, value))}]"
    return str(value)


def quantization_keys(options: QuantizationOptions) -> dict[str, object]:
    """Return the keys of a section `quantization`, ready for `format_flow`; a granularity alone stands for its section."""
    keys: dict[str, object] = {"weights": None, "activations": None}
    keys |= {key: _yaml_values(value) for key, value in options.plain_values().items()}
    weights = keys["weights"]
    if isinstance(weights, dict) and weights.keys() == {"granularity"}:
        keys["weights"] = weights["granularity"]
    return keys


def _yaml_values(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _yaml_values(child) for key, child in value.items()}
    return str(value).lower() if isinstance(value, bool) else value
