# SPDX-License-Identifier: MIT
"""Damaged copies of files: bytes and numbers anywhere, values of the wrong kind in JSON, cells of SQLite tables."""

from __future__ import annotations

import copy
import json
import random
import re
import sqlite3
from pathlib import Path
from typing import Any, Callable

Mutation = Callable[[bytes, random.Random], bytes]

ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    5,
    2**31,
    2**63,
    -(2**63),
    10**30,
    0.5,
    -0.0,
    1e308,
    -1e308,
    1e-320,
    "",
    "x",
    "\ud800",
    "a\nb",
    "é" * 50,
    "../../etc/passwd",
    "%s%n",
    "<script>",
    "0",
    "nan",
    [],
    {},
    [1],
    [[]],
    {"x": 1},
    [None] * 20,
    "y" * 5000,
)
TOKENS: tuple[bytes, ...] = (
    b"0",
    b"-1",
    b"1",
    b"99999999999",
    b"4294967295",
    b"2147483648",
    b"1e400",
    b"nan",
    b"inf",
    b"-",
    b"=",
    b":",
    b",",
    b"#",
    b"[",
    b"]",
    b"{",
    b"}",
    b"\n",
    b"\r\n",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b" ",
    b"\t",
    b"'",
    b'"',
    b"\\",
    b"&a",
    b"*a",
    b"<<: ",
    b"!!python/object:os.system",
    b"- ",
    b"null",
    b"true",
    b"1_000",
    b"0x10",
    b"..",
    b"/",
)


def bytes_of(data: bytes, rng: random.Random) -> bytes:
    """One to four small changes anywhere."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(changed) + 1)
        kind = rng.randrange(8)
        span = rng.choice((1, 2, 4, 16, 256))
        if kind == 0 and changed:
            changed[min(at, len(changed) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[at : at + span] = b""
        elif kind == 2:
            changed[at:at] = rng.choice(TOKENS)
        elif kind == 3:
            changed[at:at] = rng.randbytes(span)
        elif kind == 4:
            changed[at:at] = changed[at : at + span] * rng.choice((1, 2, 50))
        elif kind == 5 and rng.random() < 0.3:
            del changed[at:]
        elif kind == 6:
            source = rng.randrange(len(changed) + 1)
            changed[at : at + span] = changed[source : source + span]
        else:
            numbers = list(re.finditer(rb"-?\d+(\.\d+)?", bytes(changed)))
            if numbers:
                found = rng.choice(numbers)
                changed[found.start() : found.end()] = rng.choice(TOKENS[:10])
    return bytes(changed)


def json_of(data: bytes, rng: random.Random) -> bytes:
    """One to three values of a document replaced, removed, doubled or exchanged."""
    if rng.random() < 0.25:
        return bytes_of(data, rng)
    try:
        document = json.loads(data)
    except ValueError:  # changed before
        return bytes_of(data, rng)
    for _ in range(rng.choice((1, 1, 2, 3))):
        document = _change(document, rng)
    return json.dumps(document).encode()


def _change(document: Any, rng: random.Random) -> Any:
    places = list(_places(document))
    if not places or rng.random() < 0.02:
        return _odd(rng)
    # Objects deep in long lists would otherwise take all the changes.
    depth = rng.choice(sorted({depth for _, _, depth in places}))
    holder, key, _ = rng.choice([place for place in places if place[2] == depth])
    kind = rng.randrange(6)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[rng.choice(("x", "", "\ud800", "index", "id"))] = holder.pop(key)
    elif kind == 2:
        other, name, _ = rng.choice(places)
        if name in other if isinstance(other, dict) else name < len(other):
            holder[key] = json.loads(json.dumps(other[name]))
    elif kind == 3 and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
    else:
        holder[key] = _odd(rng)
    return document


def _odd(rng: random.Random) -> Any:
    """A value that nobody else holds, so that no later change puts it into itself."""
    return copy.deepcopy(rng.choice(ODD))


def _places(value: Any, depth: int = 0) -> Any:
    if isinstance(value, dict):
        for key in value:
            yield value, key, depth
            yield from _places(value[key], depth + 1)
    elif isinstance(value, list):
        for key in range(len(value)):
            yield value, key, depth
            yield from _places(value[key], depth + 1)


def store_of(data: bytes, rng: random.Random) -> bytes:
    """Bytes of the file, or cells of its tables, or documents in them."""
    if rng.random() < 0.35:
        return bytes_of(data, rng) if rng.random() < 0.2 else _overwrite(data, rng)
    path = Path(f"/dev/shm/mpnet-fuzz-{rng.getrandbits(64):x}")
    path.write_bytes(data)
    try:
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA journal_mode = DELETE")
        for _ in range(rng.choice((1, 1, 2))):
            _change_cell(db, rng)
        db.close()
        return path.read_bytes()
    finally:
        path.unlink(missing_ok=True)


def _overwrite(data: bytes, rng: random.Random) -> bytes:
    """Bytes changed in place: a disk's damage."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 3, 20))):
        at = rng.randrange(len(changed))
        span = rng.choice((1, 1, 2, 8, 512))
        changed[at : at + span] = rng.choice((bytes(span), b"\xff" * span, rng.randbytes(span)))[: len(changed) - at]
    return bytes(changed)


def _change_cell(db: sqlite3.Connection, rng: random.Random) -> None:
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    table = rng.choice([*tables, "meta", "contexts", "trials"])
    columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    if not columns:
        return
    column = rng.choice(columns)
    [(count,)] = db.execute(f"SELECT count(*) FROM {table}").fetchall()
    if not count:
        return
    key = columns[0] if table != "trials" else "key"
    [(which, old)] = db.execute(f'SELECT "{key}", "{column}" FROM {table} LIMIT 1 OFFSET {rng.randrange(count)}').fetchall()
    new: Any = rng.choice(ODD)
    if isinstance(old, str) and old[:1] == "{" and rng.random() < 0.8:
        new = json_of(old.encode(), rng).decode("utf-8", "replace")
    elif isinstance(new, (list, dict)):
        new = json.dumps(new)
    elif isinstance(new, str):
        new = new.encode("utf-8", "replace").decode()
    elif isinstance(new, int) and not -(2**63) <= new < 2**63:
        new = float(new)
    try:
        if rng.random() < 0.1:
            db.execute(
                rng.choice(
                    (
                        f"DELETE FROM {table}",
                        f"DROP TABLE {table}",
                        f"ALTER TABLE {table} RENAME TO other",
                        f'ALTER TABLE {table} RENAME COLUMN "{column}" TO other',
                    )
                )
            )
        else:
            db.execute(f'UPDATE {table} SET "{column}" = ? WHERE "{key}" IS ?', (new, which))
    except sqlite3.Error:
        pass  # a constraint that holds
