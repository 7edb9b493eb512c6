# SPDX-License-Identifier: MIT
"""The segments of a JPEG file, for what is looked up without decoding."""

from __future__ import annotations

import re
from typing import Iterator, NamedTuple

# In the data of a scan 0xff is followed by 0 or by a restart marker; anything else begins a segment. Of several 0xff only the
# last counts: a pattern that takes them all would try each run of them from each of its bytes.
_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
START_OF_SCAN = 0xDA
_WITHOUT_BODY = (0x01, 0xD8)
_END = 0xD9


class JpegSegment(NamedTuple):
    """A segment. marker: its second byte. start, end: where its body lies, behind the length; end may lie behind the file's."""

    marker: int
    start: int
    end: int


def iterate_segments(data: bytes) -> Iterator[JpegSegment]:
    """Yield the segments of a JPEG file up to its end marker, or to its end; bytes between them are skipped, as decoders do."""
    offset = 2
    while (found := _MARKER.search(data, offset)) and found[1][0] != _END:
        offset = found.end()
        if found[1][0] in _WITHOUT_BODY:
            yield JpegSegment(found[1][0], offset, offset)
        else:
            end = offset + max(2, int.from_bytes(data[offset : offset + 2], "big"))
            yield JpegSegment(found[1][0], offset + 2, end)
            offset = end
