# SPDX-License-Identifier: MIT
"""Power cuts of a store, under tests/fuzz/disk.c: python -m tests.fuzz.disk STEP.

The power goes after each `step`-th change of a file: of what was not synced any part reaches the disk.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Iterator

from mpnet.sweep.store import Trial, TrialStore
from tests.fuzz.build import under_disk
from tests.fuzz.test_crash_points import SUBJECT, trials
from tests.fuzz.usage import usage

DISK = ctypes.CDLL(None)
WRITE, TRUNCATE, SYNC, UNLINK, MARK = range(1, 6)
VARIANTS = 5


def entries(book: bytes) -> Iterator[tuple[int, str, int, bytes, int]]:
    at, head = 0, struct.Struct("4q")
    while at < len(book):
        what, offset, size, path_size = head.unpack_from(book, at)
        at += head.size
        path = book[at : at + path_size].decode()
        at += path_size
        data = book[at : at + size] if what == WRITE else b""
        at += len(data)
        yield what, path, offset, data, size


def changed(content: bytes, what: int, offset: int, data: bytes) -> bytes:
    if what == TRUNCATE:
        return content[:offset].ljust(offset, b"\0")
    return content[:offset].ljust(offset, b"\0") + data + content[offset + len(data) :]


def cut(folder: Path, step: int) -> None:
    """Power goes after any change: what was synced is there, of the rest any changes, in any order, the last torn."""
    path = folder / "s" / "sweep.sqlite"
    path.parent.mkdir()
    DISK.disk_record(1)
    with TrialStore.open(path, SUBJECT) as store:
        context = store.context({})
        DISK.disk_mark(ctypes.c_longlong(0))
        for number in range(6):
            store.add(context, trials(100 * number))
            DISK.disk_mark(ctypes.c_longlong(number + 1))
    DISK.disk_record(0)
    size = ctypes.c_size_t()
    DISK.disk_book.restype = ctypes.c_void_p
    at = DISK.disk_book(ctypes.byref(size))
    history = list(entries(ctypes.string_at(at, size.value)))
    draw, looked, slowest = random.Random(0), 0, 0.0
    durable: dict[str, bytes] = {}
    pending: list[tuple[str, int, int, bytes]] = []
    committed = -1
    for number, (what, name, offset, data, _) in enumerate(history):
        if what == MARK:
            committed = offset
        elif what == SYNC:
            for other, kind, place, content in [entry for entry in pending if entry[0] == name]:
                durable[other] = changed(durable.get(other, b""), kind, place, content)
            pending = [entry for entry in pending if entry[0] != name]
        elif what == UNLINK:
            durable.pop(name, None)
            pending = [entry for entry in pending if entry[0] != name]
        else:
            pending.append((name, what, offset, data))
        if number % step or committed < 0:
            continue
        for variant in range(VARIANTS):
            files = dict(durable)
            kept = list(pending) if variant == 1 else [entry for entry in pending if variant and draw.random() < 0.5]
            if variant > 2:
                draw.shuffle(kept)
            for place_in_kept, (other, kind, place, content) in enumerate(kept):
                torn = variant > 1 and place_in_kept == len(kept) - 1 and len(content) > 512
                piece = content[: draw.randrange(0, len(content), 512)] if torn else content
                files[other] = changed(files.get(other, b""), kind, place, piece)
            copy = folder / "cut"
            shutil.rmtree(copy, ignore_errors=True)
            copy.mkdir()
            for other, content in files.items():
                (copy / Path(other).name).write_bytes(content)
            began = time.process_time()
            with TrialStore.open(copy / path.name, SUBJECT) as store:
                held: list[Trial] = list(store.trials(context))
            slowest = max(slowest, time.process_time() - began)
            expected = [[trial for unit in range(units) for trial in trials(100 * unit)] for units in range(7)]
            assert held in expected[committed : committed + 2], f"after change {number}, variant {variant}: {len(held)} trials"
            looked += 1
    assert looked > 20
    print(f"{len(history)} changes, {looked} power cuts: every committed trial is there, {usage(slowest)}", flush=True)


if __name__ == "__main__":
    under_disk()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as space:
        cut(Path(space), int(sys.argv[1]))
