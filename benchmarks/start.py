# SPDX-License-Identifier: MIT
"""What the first image costs mprun: from the start of the process to its detections, above each further image.

Usage: start.py BUNDLE IMAGE [--mprun PROGRAM] [--isa LEVEL...] [--threads N...] [--images 8] [--repeats 15]. The bundle
should hold weights packed for the levels (`mpnet export --packed`). mprun is given the same image again and again, and says
what it found as soon as it knows it: the time from the start of the process to the first line is `first`, that from one
image's lines to the next's is `further`, one forward pass with the image read and decoded. CPU time is that of a process
with one image, its end included, beside a further image's. Processes of all levels and threads take turns. Prints Markdown:
least / median.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path


@dataclass
class Times:
    """Milliseconds of one level and number of threads: by the clock, and of CPU."""

    first: list[float] = field(default_factory=list)
    further: list[float] = field(default_factory=list)
    first_cpu: list[float] = field(default_factory=list)
    further_cpu: list[float] = field(default_factory=list)

    def row(self, *names: str) -> str:
        """Return a line of the table: least and median of each, and by how much the first is above a further one.

        This is of the two least, and the median over processes, of which each is compared with itself, since clocks and
        neighbours change.
        """
        cells = list(names)
        for first, further in ((self.first, self.further), (self.first_cpu, self.further_cpu)):
            cells += [f"{min(times):.1f} / {statistics.median(times):.1f}" for times in (first, further)]
            ratios = min(first) / min(further), statistics.median(a / b for a, b in zip(first, further, strict=True))
            cells.append(" / ".join(f"{100 * (ratio - 1):.1f} %" for ratio in ratios))
        return f"| {' | '.join(cells)} |"


def run(words: list[str], images: int) -> tuple[list[float], float]:
    """One process: milliseconds from its start to each image's detections, and of CPU. Raises: SystemExit when it fails."""
    reading, writing = os.pipe()
    begin = time.perf_counter()
    process = os.posix_spawn(words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, writing, 1)])
    os.close(writing)
    times = []
    while os.read(reading, 1 << 16):  # what is found in an image comes in one piece
        times.append(1e3 * (time.perf_counter() - begin))
    os.close(reading)
    _, status, usage = os.wait4(process, 0)
    if status or len(times) != images:
        code = os.waitstatus_to_exitcode(status)
        raise SystemExit(f"start.py: mprun ended with {code} after {len(times)} of {images} images")
    return times, 1e3 * (usage.ru_utime + usage.ru_stime)


def measure(words: list[str], image: str, images: int, times: Times) -> None:
    """Add one process of a single image, and one of `images` more."""
    _, cpu_of_one = run([*words, image], 1)
    ends, all_of_them = run([*words, *[image] * (images + 1)], images + 1)
    times.first.append(ends[0])
    times.further.append((ends[-1] - ends[0]) / images)
    times.first_cpu.append(cpu_of_one)
    times.further_cpu.append((all_of_them - cpu_of_one) / images)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--mprun", type=Path, default=Path("build/mprun/mprun"))
    parser.add_argument("--isa", nargs="+", default=["auto"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    cases = {case: Times() for case in product(options.isa, options.threads)}
    for _ in range(options.repeats):
        for (isa, threads), times in cases.items():
            words = [str(options.mprun.resolve()), str(options.bundle), "--isa", isa, "--threads", str(threads)]
            measure(words, str(options.image), options.images, times)
    print("| ISA level | threads | first ms | further ms | above | first, CPU ms | further, CPU ms | above |")
    print(f"|{'---|' * 8}")
    for (isa, threads), times in cases.items():
        print(times.row(isa, str(threads)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
