# SPDX-License-Identifier: MIT
"""Reads whole files, never more than a stated limit, and says in one line what is wrong with them."""

from __future__ import annotations

import codecs
import os
import stat
from pathlib import Path

from mpnet.errors import DataError, FormatError, MpnetError
from mpnet.messages import a, bytes_text, named, reason_of, separator_hint


def file_size(path: str | Path) -> int:
    """Return the size in bytes of a file. Raises: FormatError when it cannot be read."""
    try:
        return os.stat(path).st_size
    except (OSError, ValueError) as problem:
        raise FormatError(
            f"{named(path)}: cannot be read ({reason_of(problem)}); check the path{separator_hint(path)}"
        ) from None


def kind_of(mode: int) -> str:
    """Name something that is no regular file, for messages."""
    return "a folder" if stat.S_ISDIR(mode) else "not a regular file"


def read_bounded(
    path: str | Path, limit_bytes: int, what: str, error: type[MpnetError] = FormatError, remedy: str = "check the path"
) -> bytes:
    """Read the bytes of a file, or raise `error` when it is missing, no regular file, unreadable or larger than the limit.

    what: it should be, such as `image file`.
    """
    data = b""
    try:
        state = os.stat(path)
        # Opening a named pipe would wait for a writer.
        if stat.S_ISREG(state.st_mode) and state.st_size <= limit_bytes:
            with open(path, "rb") as file:
                # Python reserves what is asked for, so not the whole limit at once; a file may grow while it is read.
                data = file.read(state.st_size + 1)
                if len(data) > state.st_size:
                    data += file.read(limit_bytes + 1 - len(data))
    except (OSError, ValueError) as problem:
        raise error(f"{named(path)}: cannot be read ({reason_of(problem)}); {remedy}{separator_hint(path)}") from None
    if not stat.S_ISREG(state.st_mode):
        raise error(f"{named(path)}: is {kind_of(state.st_mode)}; name {a(what)}")
    if max(state.st_size, len(data)) > limit_bytes:
        raise error(f"{named(path)}: is larger than {bytes_text(limit_bytes)}; this is no {what}")
    return data


_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins as UTF-16's does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decode_text(data: bytes) -> str:
    """Return the text in a file's bytes: UTF-8, or what its byte order mark says, which is left out.

    Editors and shells of Windows write UTF-16 and byte order marks. Raises: UnicodeDecodeError.
    """
    encoding = next((encoding for mark, encoding in _BYTE_ORDER_MARKS if data.startswith(mark)), "utf-8")
    return data.decode(encoding)


def utf8_bytes(data: bytes) -> bytes:
    """Return the same text as UTF-8 without a byte order mark; bytes without a mark, and those it lies about, as they are."""
    if not data.startswith(tuple(mark for mark, _ in _BYTE_ORDER_MARKS)):
        return data
    try:
        return decode_text(data).encode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data


def read_text_bounded(path: str | Path, limit_bytes: int, what: str, question: str) -> str:
    """Return the text of a file, as `decode_text` finds it. what: as `read_bounded`. question: of the message for other files.

    Raises: DataError when it cannot be read, FormatError with the line of the first byte that is no UTF-8.
    """
    data = read_bounded(path, limit_bytes, what, DataError)
    try:
        return decode_text(data)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FormatError(f"{named(path)}:{line}: not UTF-8 text; is this {question}?") from None
