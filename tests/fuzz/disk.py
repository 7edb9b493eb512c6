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
    position, head = 0, struct.Struct("4q")
    while position < len(book):
        kind, offset, size, path_size = head.unpack_from(book, position)
        position += head.size
        path = book[position : position + path_size].decode()
        position += path_size
        data = book[position : position + size] if kind == WRITE else b""
        position += len(data)
        yield kind, path, offset, data, size


def apply_change(content: bytes, kind: int, offset: int, data: bytes) -> bytes:
    if kind == TRUNCATE:
        return content[:offset].ljust(offset, b"\0")
    return content[:offset].ljust(offset, b"\0") + data + content[offset + len(data) :]


def cut_power(folder: Path, step: int) -> None:
    """Cut the power after any change: what was synced is there, of the rest any changes, in any order, the last torn."""
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
    book = DISK.disk_book(ctypes.byref(size))
    history = list(entries(ctypes.string_at(book, size.value)))
    draw, cut_count, slowest = random.Random(0), 0, 0.0
    durable: dict[str, bytes] = {}
    pending: list[tuple[str, int, int, bytes]] = []
    committed = -1
    for number, (kind, name, offset, data, _) in enumerate(history):
        if kind == MARK:
            committed = offset
        elif kind == SYNC:
            for file_name, pending_kind, position, content in [entry for entry in pending if entry[0] == name]:
                durable[file_name] = apply_change(durable.get(file_name, b""), pending_kind, position, content)
            pending = [entry for entry in pending if entry[0] != name]
        elif kind == UNLINK:
            durable.pop(name, None)
            pending = [entry for entry in pending if entry[0] != name]
        else:
            pending.append((name, kind, offset, data))
        if number % step or committed < 0:
            continue
        for variant in range(VARIANTS):
            files = dict(durable)
            surviving = list(pending) if variant == 1 else [entry for entry in pending if variant and draw.random() < 0.5]
            if variant > 2:
                draw.shuffle(surviving)
            for place_in_kept, (file_name, pending_kind, position, content) in enumerate(surviving):
                is_torn = variant > 1 and place_in_kept == len(surviving) - 1 and len(content) > 512
                piece = content[: draw.randrange(0, len(content), 512)] if is_torn else content
                files[file_name] = apply_change(files.get(file_name, b""), pending_kind, position, piece)
            copy = folder / "cut"
            shutil.rmtree(copy, ignore_errors=True)
            copy.mkdir()
            for file_name, content in files.items():
                (copy / Path(file_name).name).write_bytes(content)
            began = time.process_time()
            with TrialStore.open(copy / path.name, SUBJECT) as store:
                stored_trials: list[Trial] = list(store.trials(context))
            slowest = max(slowest, time.process_time() - began)
            expected = [[trial for unit in range(units) for trial in trials(100 * unit)] for units in range(7)]
            assert stored_trials in expected[committed : committed + 2], (
                f"after change {number}, variant {variant}: {len(stored_trials)} trials"
            )
            cut_count += 1
    assert cut_count > 20
    print(f"{len(history)} changes, {cut_count} power cuts: every committed trial is there, {usage(slowest)}", flush=True)


if __name__ == "__main__":
    under_disk()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as space:
        cut_power(Path(space), int(sys.argv[1]))
