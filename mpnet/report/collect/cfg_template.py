# SPDX-License-Identifier: MIT
"""A network file cut into pieces, so that a page can write the .cfg of any configuration as `mpnet export` does."""

from __future__ import annotations

import re
from typing import Sequence

from mpnet.errors import FormatError, StoreError
from mpnet.formats.cfg.edit import cfg_for_key
from mpnet.formats.cfg.read import parse_cfg
from mpnet.model.plan_key import split_key
from mpnet.report.data.report_data import CfgTemplate

CHECKED = 16
_HEADER = re.compile(rb"\s*\[")


def cfg_template(content: bytes, keys: Sequence[str], file_name: str) -> CfgTemplate:
    """Return pieces that give the same file as `cfg_for_key` for every key of a sweep; the first keys are tried.

    Raises: StoreError when keys differ in more than layers with weights, FormatError for an invalid cfg.
    """
    tails = {split_key(key)[1] for key in keys}
    if len(tails) != 1:
        raise StoreError("configurations differ in layers without weights, which a page cannot set; use `mpnet export`")
    network = parse_cfg(content, file_name)
    codes = sorted({code for key in keys for code in split_key(key)[0]})
    tail = tails.pop()
    count = len(network.convolutions)
    if not codes or any(len(split_key(key)[0]) != count for key in keys):
        raise StoreError(f"{file_name}: has {count} layers with weights, and not every precision string is for so many")
    edited = {code: _sections(cfg_for_key(content, code * count + tail, file_name)) for code in codes}
    original = edited[codes[0]]
    if any(len(sections) != len(network.layers) + 2 for sections in edited.values()):
        raise FormatError(f"{file_name}: its sections cannot be told apart; use `mpnet export`")
    try:
        content.decode(encoding := "utf-8")
    except UnicodeDecodeError:
        encoding = "latin-1"
    position_of = {layer.index: order for order, layer in enumerate(network.convolutions)}
    pieces: list[tuple[object, int | None]] = []
    for number in range(len(original)):
        # Before the first header, then [net], then one section per layer.
        position = position_of.get(number - 2)
        if position is None:
            pieces.append((original[number].decode(encoding), None))
        else:
            pieces.append(({code: edited[code][number].decode(encoding) for code in codes}, position))
    template = CfgTemplate(file_name, tuple(pieces), encoding)  # type: ignore[arg-type]
    for key in keys[:: max(1, len(keys) // CHECKED)]:
        if template.fill(key).encode(encoding) != cfg_for_key(content, key, file_name):
            raise StoreError(f"{file_name}: its layers cannot be set one by one; use `mpnet export`")
    return template


def _sections(content: bytes) -> list[bytes]:
    pieces: list[list[bytes]] = [[]]
    for line in content.splitlines(keepends=True):
        if _HEADER.match(line):
            pieces.append([])
        pieces[-1].append(line)
    return [b"".join(piece) for piece in pieces]
