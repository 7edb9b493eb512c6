# SPDX-License-Identifier: MIT
"""What is done under tests/fuzz/disk.c: LD_PRELOAD=disk.so python -m tests.fuzz.disk TASK STEP.

refuse: `run`, `sweep`, `export` and `report` with each `step`-th change of a file refused, once and for ever: exit code 0, or 2
and one line; nothing half; and the same command succeeds when the disk does. cut: a store's power cuts: of what was not synced
any part reaches the disk.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import random
import shutil
import struct
import sys
import tempfile
from pathlib import Path
from typing import Callable, Iterator

from mpnet.cli.main import cli, guarded
from mpnet.sweep.store import Trial, TrialStore
from tests.fuzz.kills import SECTIONS, arguments, stored
from tests.fuzz.test_crash_points import SUBJECT, trials
from tests.networks import small_cfg, write_experiment

DISK = ctypes.CDLL(None)
WRITE, TRUNCATE, SYNC, UNLINK, MARK = range(1, 6)
VARIANTS = 5
MANY = 40


def call(words: list[str]) -> int:
    return guarded(lambda: cli.main(words, standalone_mode=False))


def forked(words: list[str], number: int, count: int, error: int) -> tuple[int, str, int]:
    """The command in a fork, changes refused from `number` on: exit code, standard error, how many changes there were."""
    with tempfile.TemporaryFile() as said:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 3
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                os.dup2(said.fileno(), 2)
                DISK.disk_refuse(ctypes.c_long(number), ctypes.c_long(count), error)
                code = call(words)
            finally:
                changes = DISK.disk_calls()
                DISK.disk_refuse(ctypes.c_long(0), ctypes.c_long(0), 0)
                os.write(write, str(changes).encode())
                sys.stderr.flush()
                os._exit(code)
        os.close(write)
        with os.fdopen(read) as pipe:
            changes = int(pipe.read() or 0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said.seek(0)
        return code, said.read().decode(), changes


def refuse(folder: Path, step: int) -> None:
    experiment = write_experiment(folder, small_cfg())
    experiment.write_text(experiment.read_text().replace("confidence: 0.05", "confidence: 0.5") + SECTIONS["greedy"])
    os.chdir(folder)
    run = ["run", "experiment.yaml", "-q", "--set", "data.limit=2", "--set", "runtime.threads=1"]
    with open(os.devnull, "w") as devnull:
        sys.stdout = devnull
        assert call(run) == 0
        result = (folder / "runs/tiny/latest").resolve()
        shutil.copytree(result, folder / "kept")
        assert call(arguments(folder / "whole.sqlite", 1)) == 0
    sys.stdout = sys.__stdout__
    whole = stored(folder / "whole.sqlite")
    out = folder / "out"

    def is_result() -> bool:
        return (
            json.loads((result / "result.json").read_text())["metrics"]
            == json.loads((folder / "kept/result.json").read_text())["metrics"]
        )

    def swept(all_of_it: bool) -> bool:
        now = stored(out / "s.sqlite")
        return now == whole if all_of_it else all(whole[key] == trial for key, trial in now.items())

    def same(name: str) -> Callable[[bool], bool]:
        return lambda all_of_it: (not (out / name).exists() and not all_of_it) or (out / name).stat().st_size > 500

    tasks: dict[str, tuple[list[str], Callable[[bool], bool]]] = {
        "run": (run, lambda all_of_it: (not result.exists() and not all_of_it) or is_result()),
        "sweep": (arguments(out / "s.sqlite", 1), swept),
        "export": (["export", "kept", "--to", "bundle", "--no-profile", "-o", str(out / "net.mpnet")], same("net.mpnet")),
        "report": (["report", "kept", "-o", str(out / "r.html")], same("r.html")),
    }
    for name, (words, holds) in tasks.items():
        shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(folder / "runs", ignore_errors=True)
        out.mkdir()
        code, said, changes = forked(words, 0, 0, 0)
        assert (code, holds(True)) == (0, True), said
        tried = refused = 0
        for number in range(1, changes + 1, step if changes > MANY else -(-step // 10)):
            for count, error in ((1, errno.ENOSPC), (1 << 40, errno.ENOSPC), (1, errno.EIO)):
                shutil.rmtree(out, ignore_errors=True)
                shutil.rmtree(folder / "runs", ignore_errors=True)
                out.mkdir()
                code, said, _ = forked(words, number, count, error)
                place = f"{name}, change {number}, {count}: exit code {code}: {said}"
                assert code in (0, 2), place
                lines = [line for line in said.splitlines() if line.startswith("error: ")]
                assert len(lines) == (code == 2), place
                assert "Traceback" not in said, place
                assert holds(code == 0), place
                assert [path.name for path in out.iterdir() if path.name.startswith(".")] == [], place
                code, said, _ = forked(words, 0, 0, 0)
                assert code == 0, f"{place}\nand again: {said}"
                assert holds(True), place
                tried += 1
                refused += bool(lines)
        assert refused
        print(
            f"{name}: {changes} changes of files, {tried} tries, {refused} ended in one line, nothing half or lost", flush=True
        )


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
    draw, looked = random.Random(0), 0
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
            with TrialStore.open(copy / path.name, SUBJECT) as store:
                held: list[Trial] = list(store.trials(context))
            expected = [[trial for unit in range(units) for trial in trials(100 * unit)] for units in range(7)]
            assert held in expected[committed : committed + 2], f"after change {number}, variant {variant}: {len(held)} trials"
            looked += 1
    assert looked > 20
    print(f"{len(history)} changes, {looked} power cuts: every committed trial is there", flush=True)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as space:
        {"refuse": refuse, "cut": cut}[sys.argv[1]](Path(space), int(sys.argv[2]))
