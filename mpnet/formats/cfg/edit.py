# SPDX-License-Identifier: MIT
"""A precision plan written into the text of a cfg: comments and everything else stay, only keys that differ change.

`diff` between the old and the new file then shows the decision and nothing more.
"""

from __future__ import annotations

import re
from typing import Sequence

from mpnet.errors import FormatError
from mpnet.formats.cfg.read import parse_cfg
from mpnet.model.network import YoloSpec
from mpnet.model.plan_key import parse_key
from mpnet.model.precision import FP32, PRECISIONS, USUAL_NAMES, Precision

# Indentation, key (Darknet ignores blanks even inside it), equals sign, value, the rest.
_KEY_LINE = re.compile(r"([ \t]*)([A-Za-z0-9_][A-Za-z0-9_ \t]*?)([ \t]*=[ \t]*)([^\s#;]+)(.*)", re.DOTALL)
_HEADER = re.compile(r"\s*\[")
# Text and its line end, which is kept as it is.
_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|$)")


def edit_precisions(content: bytes, requested: Sequence[Precision | None], source: str = "<text>") -> bytes:
    """Return the cfg with these precisions by layer index; None leaves a layer as it is.

    A layer that already has the wanted precision by its own keys or by the default of [net] is not touched. One with
    precision keys gets them switched; one without gets the full set after its last key. quantize=0 of a changed layer
    and of those that read it becomes quantize=1, since its promise may no longer hold.
    Raises: FormatError, PrecisionError when the cfg is invalid or does not have that many layers.
    """
    network = parse_cfg(content, source)
    if len(requested) != len(network.layers):
        raise FormatError(f"{source}: has {len(network.layers)} layers, but precisions for {len(requested)} were given")
    lines = [[match[1], match[2]] for match in _LINE.finditer(content.decode("latin-1")) if match[0]]
    bounds = _sections(lines)
    fallback = network.declared.precision if network.declared and network.declared.precision else FP32
    changed: dict[int, Precision] = {}
    affected: set[int] = set()
    for layer in network.layers:
        target = requested[layer.index]
        if target is None or isinstance(layer, YoloSpec):
            continue
        declared = layer.declared.precision if layer.declared is not None else None
        if target == declared or (declared is None and layer.has_weights and target == fallback):
            continue
        changed[layer.index] = target
        affected |= {layer.index} | network.readers_of(layer.index)
    # From the end, so that insertions leave earlier line numbers alone.
    for index in sorted(affected, reverse=True):
        start, stop = bounds[index + 1]
        _allow_conversion(lines, start, stop)
        if index in changed:
            _set_precision(lines, start, stop, changed[index])
    result = "".join(text + end for text, end in lines).encode("latin-1")
    _check_result(result, changed, source)
    return result


def cfg_for_key(content: bytes, key: str, source: str = "<text>") -> bytes:
    """Return the cfg with the precisions of a plan key.

    Raises: FormatError, PrecisionError for an invalid cfg or a key of another network.
    """
    network = parse_cfg(content, source)
    chosen = parse_key(network, key)
    return edit_precisions(content, [chosen.get(layer.index) for layer in network.layers], source)


def _sections(lines: list[list[str]]) -> list[tuple[int, int]]:
    """Return (first, one past the last) line of each section, the header line first."""
    starts = [number for number, (text, _) in enumerate(lines) if _HEADER.match(text)]
    return list(zip(starts, [*starts[1:], len(lines)], strict=True))


def _key(match: re.Match[str]) -> str:
    return "".join(match[2].split())


def _allow_conversion(lines: list[list[str]], start: int, stop: int) -> None:
    for number in range(start + 1, stop):
        match = _KEY_LINE.fullmatch(lines[number][0])
        if match is not None and _key(match) == "quantize" and match[4] != "1":
            lines[number][0] = f"{match[1]}{match[2]}{match[3]}1{match[5]}"


def _check_result(content: bytes, changed: dict[int, Precision], source: str) -> None:
    """Check the written cfg: whoever saves a decision must be able to trust the file."""
    network = parse_cfg(content, source)
    for index, target in changed.items():
        layer = network.layers[index]
        if layer.declared is None or layer.declared.precision != target:
            raise FormatError(f"{source}:{layer.line}: cannot set {target} here; write one key=value per line")


def _set_precision(lines: list[list[str]], start: int, stop: int, target: Precision) -> None:
    present: set[str] = set()
    last_key, blanks = start, ""
    for number in range(start + 1, stop):
        match = _KEY_LINE.fullmatch(lines[number][0])
        if match is None:
            continue
        indent, written, equals, value, rest = match.groups()
        last_key, blanks, key = number, indent, _key(match)
        if key in PRECISIONS:
            present.add(key)
            new = "1" if key == target.name else "0"
            if value != new:
                lines[number][0] = f"{indent}{written}{equals}{new}{rest}"
    if target.name in present:
        return
    missing = [name for name in USUAL_NAMES if name not in present] if not present else []
    if target.name not in missing:
        missing.append(target.name)
    end = lines[last_key][1] or lines[start][1]
    lines[last_key][1] = end
    lines[last_key + 1 : last_key + 1] = [[f"{blanks}{name}={int(name == target.name)}", end] for name in missing]
