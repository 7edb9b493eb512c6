# SPDX-License-Identifier: MIT
"""Calibrated ranges <-> a JSON file that people can read: one tensor per line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from mpnet.errors import DataError, FormatError
from mpnet.formats.documents.json_text import DocumentFormat, integer, number, records
from mpnet.formats.files.atomic import write_text
from mpnet.messages import shown
from mpnet.model.ranges import CalibratedRanges, TensorRange

RANGES = DocumentFormat("mpnet-ranges", 1, "ranges file", "calibrate again", 16 << 20, {"digests": dict})


def ranges_json(ranges: CalibratedRanges) -> str:
    """Write the text of a ranges file. The same ranges give the same text; nine digits give every float32 back."""
    head = [
        *(f'  "{key}": {json.dumps(value)}' for key, value in RANGES.head.items()),
        f'  "images": {ranges.images}',
        f'  "digests": {json.dumps(dict(ranges.digests), sort_keys=True)}',
    ]
    lines = [
        f'    {{"tensor": {t.tensor}, "name": {json.dumps(t.name)}, "min": {t.minimum:.9g}, "max": {t.maximum:.9g}, '
        f'"seen_min": {t.seen_minimum:.9g}, "seen_max": {t.seen_maximum:.9g}, "method": {json.dumps(t.method)}}}'
        for t in sorted(ranges.tensors, key=lambda t: t.tensor)
    ]
    return "{\n" + ",\n".join(head) + ',\n  "tensors": [\n' + ",\n".join(lines) + "\n  ]\n}\n"


def write_ranges(path: Path | str, ranges: CalibratedRanges) -> None:
    """Write a ranges file, completely or not at all. Raises: StoreError."""
    write_text(path, ranges_json(ranges))


def read_ranges(path: Path | str) -> CalibratedRanges:
    """Read the ranges of a file. Raises: FormatError naming file and record for whatever is wrong with them."""
    document = RANGES.read(path)
    listed = document["digests"]
    digests = {name: text for name, text in listed.items() if isinstance(text, str)} if isinstance(listed, dict) else {}
    if digests != listed:
        raise FormatError(f"{path}: 'digests' must be an object of texts, not {shown(listed)}")
    tensors = []
    for location, record in records(document, "tensors", path):
        name, method = record.get("name"), record.get("method")
        if not isinstance(name, str) or not isinstance(method, str):
            raise FormatError(f"{location}: 'name' and 'method' must be texts, not {shown(name)} and {shown(method)}")
        with np.errstate(over="ignore"):  # infinity then is an error of its own
            low, high, seen_low, seen_high = (
                float(np.float32(number(record, key, location))) for key in ("min", "max", "seen_min", "seen_max")
            )
        try:
            tensors.append(TensorRange(integer(record, "tensor", location), name, low, high, seen_low, seen_high, method))
        except DataError as error:
            raise FormatError(f"{location}: {error}") from None
    try:
        return CalibratedRanges(tuple(tensors), integer(document, "images", str(path)), digests)
    except DataError as error:
        raise FormatError(f"{path}: {error}") from None
