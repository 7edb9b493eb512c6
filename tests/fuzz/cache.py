# SPDX-License-Identifier: MIT
"""Entries of the cache of prepared weights are damaged while processes prepare and run one network.

python -m tests.fuzz.cache ROUNDS [SEED]: two processes load the network again and again and must compute the same heads every
time. Meanwhile this one writes over entries, cuts and extends them, exchanges their content, puts links and pipes in their
place, or removes them: one change a round.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import stat
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Callable

import numpy as np

from mpnet.api.network import load_network
from mpnet.formats.files.cache import cache_folder
from tests.fuzz.usage import usage
from tests.networks import small_cfg, write_network

PRECISIONS = ("fp32", "fp16", "int8", "int4")


def heads(folder: Path) -> bytes:
    """Return the heads of one image in every precision, of networks that are prepared now."""
    results = []
    for precision in PRECISIONS:
        network = load_network(folder / "net.cfg", folder / "net.weights", default=precision, threads=1)
        image = np.random.default_rng(0).random((1, *network.spec.in_shape), np.float32)
        results.extend(head.tobytes() for head in network.forward(image))
    return b"".join(results)


def _prepare(folder: Path, expected: bytes, sender: Connection) -> None:
    """Load and run for ever; tell after each time whether the heads were the expected ones, and its seconds."""
    while True:
        start = time.monotonic()
        sender.send((heads(folder) == expected, time.monotonic() - start))


def _overwrite(rng: random.Random, path: Path, other_paths: list[Path]) -> None:
    with open(path, "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(rng.randrange(max(1, size)))
        file.write(rng.randbytes(rng.choice((1, 8, 64, 4096))))


def _resize(rng: random.Random, path: Path, other_paths: list[Path]) -> None:
    os.truncate(path, rng.choice((0, 1, 127, 128, 192, rng.randrange(1 << 16))))


def _exchange(rng: random.Random, path: Path, other_paths: list[Path]) -> None:
    path.write_bytes(rng.choice(other_paths).read_bytes())


def _link(rng: random.Random, path: Path, other_paths: list[Path]) -> None:
    path.unlink()
    path.symlink_to(rng.choice(other_paths))


def _pipe(rng: random.Random, path: Path, other_paths: list[Path]) -> None:
    path.unlink()
    os.mkfifo(path)


def _remove(rng: random.Random, path: Path, other_paths: list[Path]) -> None:
    path.unlink()


DAMAGES: tuple[Callable[[random.Random, Path, list[Path]], None], ...] = (
    _overwrite,
    _overwrite,
    _resize,
    _exchange,
    _link,
    _pipe,
    _remove,
)


def _damage(rng: random.Random) -> None:
    """Do one of DAMAGES to an entry."""
    try:
        # Not to a link or a pipe, which is damaged already: opening a pipe would wait.
        entries = [path for path in sorted(cache_folder().rglob("[!.]*.mpc")) if stat.S_ISREG(path.lstat().st_mode)]
        if entries:
            rng.choice(DAMAGES)(rng, rng.choice(entries), entries)
    except (FileNotFoundError, FileExistsError):
        pass  # a process made the entry anew in this moment


def hunt(rounds: int, seed: int) -> tuple[int, float]:
    """Return (how many passes had other heads, or ended their process; seconds of the longest pass)."""
    rng, failures, slowest = random.Random(seed), 0, 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["MPNET_CACHE"] = str(folder / "cache")
        write_network(folder, text=small_cfg())
        expected = heads(folder)
        pairs = [multiprocessing.Pipe(duplex=False) for _ in range(2)]
        workers = [
            multiprocessing.get_context("fork").Process(target=_prepare, args=(folder, expected, sender), daemon=True)
            for _, sender in pairs
        ]
        for worker in workers:
            worker.start()
        try:
            for number in range(rounds):
                _damage(rng)
                receiver, worker = pairs[number % 2][0], workers[number % 2]
                while not receiver.poll(0.1):
                    if not worker.is_alive():
                        return failures + 1, slowest
                is_equal, seconds = receiver.recv()
                failures, slowest = failures + (not is_equal), max(slowest, seconds)
        finally:
            for worker in workers:
                worker.kill()
                worker.join()
    return failures, slowest


def main(words: list[str]) -> int:
    rounds, seed = int(words[0]), int(words[1]) if len(words) > 1 else 0
    failures, slowest = hunt(rounds, seed)
    print(f"cache: {rounds} changes from seed {seed}, {failures} wrong, {usage(slowest)}")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
