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
    """Make one to four small changes anywhere."""
    mutated = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        position = rng.randrange(len(mutated) + 1)
        kind = rng.randrange(8)
        span = rng.choice((1, 2, 4, 16, 256))
        if kind == 0 and mutated:
            mutated[min(position, len(mutated) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            mutated[position : position + span] = b""
        elif kind == 2:
            mutated[position:position] = rng.choice(TOKENS)
        elif kind == 3:
            mutated[position:position] = rng.randbytes(span)
        elif kind == 4:
            mutated[position:position] = mutated[position : position + span] * rng.choice((1, 2, 50))
        elif kind == 5 and rng.random() < 0.3:
            del mutated[position:]
        elif kind == 6:
            source = rng.randrange(len(mutated) + 1)
            mutated[position : position + span] = mutated[source : source + span]
        else:
            numbers = list(re.finditer(rb"-?\d+(\.\d+)?", bytes(mutated)))
            if numbers:
                number = rng.choice(numbers)
                mutated[number.start() : number.end()] = rng.choice(TOKENS[:10])
    return bytes(mutated)


def json_of(data: bytes, rng: random.Random) -> bytes:
    """Replace, remove, double or exchange one to three values of a document."""
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
    slots = list(_walk(document))
    if not slots or rng.random() < 0.02:
        return _odd(rng)
    # Objects deep in long lists would otherwise take all the changes.
    depth = rng.choice(sorted({depth for _, _, depth in slots}))
    holder, key, _ = rng.choice([slot for slot in slots if slot[2] == depth])
    kind = rng.randrange(6)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[rng.choice(("x", "", "\ud800", "index", "id"))] = holder.pop(key)
    elif kind == 2:
        holder_of_name, name, _ = rng.choice(slots)
        if name in holder_of_name if isinstance(holder_of_name, dict) else name < len(holder_of_name):
            holder[key] = json.loads(json.dumps(holder_of_name[name]))
    elif kind == 3 and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
    else:
        holder[key] = _odd(rng)
    return document


def _odd(rng: random.Random) -> Any:
    """Return a value that nobody else holds, so that no later change puts it into itself."""
    return copy.deepcopy(rng.choice(ODD))


def _walk(value: Any, depth: int = 0) -> Any:
    if isinstance(value, dict):
        for key in value:
            yield value, key, depth
            yield from _walk(value[key], depth + 1)
    elif isinstance(value, list):
        for key in range(len(value)):
            yield value, key, depth
            yield from _walk(value[key], depth + 1)


def store_of(data: bytes, rng: random.Random) -> bytes:
    """Change bytes of the file, or cells of its tables, or documents in them."""
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
    """Change bytes in place: a disk's damage."""
    mutated = bytearray(data)
    for _ in range(rng.choice((1, 3, 20))):
        position = rng.randrange(len(mutated))
        span = rng.choice((1, 1, 2, 8, 512))
        mutated[position : position + span] = rng.choice((bytes(span), b"\xff" * span, rng.randbytes(span)))[
            : len(mutated) - position
        ]
    return bytes(mutated)


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
    [(row_key, old_value)] = db.execute(
        f'SELECT "{key}", "{column}" FROM {table} LIMIT 1 OFFSET {rng.randrange(count)}'
    ).fetchall()
    new_value: Any = rng.choice(ODD)
    if isinstance(old_value, str) and old_value[:1] == "{" and rng.random() < 0.8:
        new_value = json_of(old_value.encode(), rng).decode("utf-8", "replace")
    elif isinstance(new_value, (list, dict)):
        new_value = json.dumps(new_value)
    elif isinstance(new_value, str):
        new_value = new_value.encode("utf-8", "replace").decode()
    elif isinstance(new_value, int) and not -(2**63) <= new_value < 2**63:
        new_value = float(new_value)
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
            db.execute(f'UPDATE {table} SET "{column}" = ? WHERE "{key}" IS ?', (new_value, row_key))
    except sqlite3.Error:
        pass  # a constraint that holds
