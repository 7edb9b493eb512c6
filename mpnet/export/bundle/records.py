# SPDX-License-Identifier: MIT
"""The records of csrc/mprun/bundle.h, filled from Python: sections that grow, texts that are kept once."""

from __future__ import annotations

import sys
from typing import Any, Iterable, Sequence

from mpnet.errors import ConfigError
from mpnet.kernels.bundles import record, record_size, records
from mpnet.kernels.core import CFields, constant, crc32c

ALIGN = constant("MPB_ALIGN")


def aligned(content: bytes | bytearray) -> bytes:
    """Return the same bytes, with zeros up to a multiple of ALIGN."""
    return bytes(content) + bytes(-len(content) % ALIGN)


class Texts:
    """UTF-8, each text ended by 0; offset 0 is the empty one."""

    def __init__(self) -> None:
        self.content = bytearray(b"\0")
        self._offsets: dict[str, int] = {"": 0}

    def add(self, text: str) -> int:
        """Add a name and return its offset. Bytes of file names that are no UTF-8 stay what they were."""
        if text not in self._offsets:
            self._offsets[text] = len(self.content)
            self.content += _encoded(text)
        return self._offsets[text]

    def add_list(self, texts: Iterable[str]) -> int:
        """Add texts and return the offset of the first; the others follow it."""
        start = len(self.content)
        for text in texts:
            self.content += _encoded(text or "?")  # an empty one would end the list
        return start


def _encoded(text: str) -> bytes:
    return text.replace("\0", "?").encode("utf-8", "surrogateescape") + b"\0"


class Data:
    """Pieces of weights, each at a multiple of ALIGN; equal ones stand there once."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._size = 0
        self._offsets: dict[bytes, dict[str, int]] = {}

    def piece(self, content: bytes) -> dict[str, int]:
        """Add a piece and return the fields of its mpb_piece."""
        if content not in self._offsets:
            self._offsets[content] = {"at": self._size, "bytes": len(content), "crc": crc32c(content) if content else 0}
            self.pieces.append(aligned(content))
            self._size += len(self.pieces[-1])
        return self._offsets[content]


class Records:
    """A section of records of one C type."""

    def __init__(self, c_type: str) -> None:
        self._type = c_type
        self._size = record_size(c_type)
        self._rows: list[bytes] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, **fields: Any) -> int:
        """Append one; its number. What is not given is 0."""
        self._rows.append(record(self._type, fields))
        return len(self._rows) - 1

    def section(self) -> tuple[int, bytes]:
        """Return the size of a record in bytes, and the content of all records."""
        return self._size, b"".join(self._rows)


def assembled(sections: Sequence[tuple[int, bytes]], data: Sequence[bytes]) -> bytes:
    """Return the content of the file: header, table of sections, (record bytes, content) of each section but the last, data.

    Raises: ConfigError on a machine whose numbers lie in memory the other way round.
    """
    if sys.byteorder != "little":
        raise ConfigError("--to bundle: bundles are little-endian, and this machine is not; export on another")
    all_sections = [*sections, (1, None)]
    head = record_size("mpb_header") + len(all_sections) * record_size("mpb_section")
    position = -(-head // ALIGN) * ALIGN
    table = []
    for record_bytes, content in all_sections:
        size = sum(map(len, data)) if content is None else len(content)
        table.append(
            {"at": position, "bytes": size, "record_bytes": record_bytes, "crc": 0 if content is None else crc32c(content)}
        )
        position = -(-(position + size) // ALIGN) * ALIGN
    rows = records("mpb_section", table)
    fields: CFields = {
        "magic": b"mpbundle",
        "version": constant("MPB_VERSION"),
        "sections": len(all_sections),
        "bytes": position,
    }
    checksum = crc32c(record("mpb_header", fields) + rows)
    blocks = [
        aligned(record("mpb_header", {**fields, "crc": checksum}) + rows),
        *(aligned(content) for _, content in sections),
        *data,
    ]
    return b"".join(blocks)
