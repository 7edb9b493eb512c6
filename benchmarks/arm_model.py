# SPDX-License-Identifier: MIT
"""Modelled milliseconds of networks on Arm cores that nobody here has: docs/results/arm-model.md says how and how far off.

    python benchmarks/arm_model.py count FOLDER NAME=CFG... [--precisions NAME@TABLE,...] >> docs/results/arm-model-counts.csv
    python benchmarks/arm_model.py table [COUNTS.csv]

`count` runs one pass of each network under QEMU, one thread, ranges calibrated on random images, and prints instructions of
each step by kind. It needs `make mprun-arm`, aarch64-linux-gnu-gcc and qemu-aarch64 (Debian: gcc-aarch64-linux-gnu, qemu-user).
Values of weights change no count, so they are random. `table` computes milliseconds from such counts, in a second, and writes
the tables of the page.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

KINDS = ("vector_load", "vector_store", "stack", "float", "dot", "integer", "vector", "branch", "other")
"""Kinds of instructions as tests/counts/plugin.c counts them: float, dot and integer are products of vectors."""
HEADINGS = ("network", "precision", "table", "step", "macs", "weight_bytes", "input_bytes", "output_bytes", *KINDS)
COUNTS = ROOT / "docs/results/arm-model-counts.csv"
CPUS = {"neon": "cortex-a57", "neon_dotprod": "cortex-a76"}
"""Kernel table -> CPU of the emulator that has its instructions."""
PRECISIONS = "fp32@neon,fp32_winograd@neon,int8@neon,fp16_half@neon_dotprod,fp16_half_winograd@neon_dotprod,int8@neon_dotprod"


@dataclass(frozen=True)
class Count:
    """One step of a network: instructions by kind, and the bytes that it reads and writes."""

    network: str
    precision: str
    table: str
    step: str
    macs: int
    weight_bytes: int
    input_bytes: int
    output_bytes: int
    instructions: Mapping[str, int]


@dataclass(frozen=True)
class Core:
    """A core, at a board's clock. Instructions a cycle are upper limits of Arm's optimisation guides for 128-bit vectors.

    tables:       kernel tables that it runs. clock_mhz: of the board. issue: instructions of any kind.
    vectors:      all work of vectors; float_products, dot_products, integer_products: among it. loads, stores: of vectors.
    is_in_order:  no vector access runs beside other vector work.
    cache_bytes:  larger tensors come from memory. memory_gb_s: what one core gets from there.
    """

    name: str
    board: str
    tables: tuple[str, ...]
    clock_mhz: float
    issue: float
    vectors: float
    float_products: float
    dot_products: float
    integer_products: float
    loads: float
    stores: float
    is_in_order: bool
    cache_bytes: int
    memory_gb_s: float

    def cycles(self, kinds: Mapping[str, int]) -> float:
        """Return the cycles of a step whose data lie in the cache: its scarcest unit decides."""
        products = kinds["float"] + kinds["dot"] + kinds["integer"]
        multiplied = sum(
            kinds[kind] / limit
            for kind, limit in (("float", self.float_products), ("dot", self.dot_products), ("integer", self.integer_products))
        )
        busy = max((products + kinds["vector"]) / self.vectors, multiplied)
        loaded, stored = (kinds["vector_load"] + kinds["stack"]) / self.loads, kinds["vector_store"] / self.stores
        if self.is_in_order:
            busy += loaded + stored
        return max(sum(kinds.values()) / self.issue, busy, loaded, stored)

    def step_ms(self, count: Count) -> float:
        """Return the modelled time of a step: computing, or moving its data, whichever takes longer."""
        moved = count.weight_bytes + sum(size for size in (count.input_bytes, count.output_bytes) if size > self.cache_bytes)
        return max(self.cycles(count.instructions) / self.clock_mhz / 1e3, moved / self.memory_gb_s / 1e6)


NEON, DOTPROD = ("neon",), ("neon", "neon_dotprod")
CORES = (
    Core("Cortex-A53", "Raspberry Pi 3 B+, 1.4 GHz", NEON, 1400, 2, 1, 1, 1, 1, 0.5, 1, True, 512 << 10, 2.2),
    Core("Cortex-A72", "Raspberry Pi 4, 1.5 GHz", NEON, 1500, 3, 2, 1, 1, 1, 1, 1, False, 1 << 20, 4.5),
    Core("Cortex-A76", "Raspberry Pi 5, 2.4 GHz", DOTPROD, 2400, 4, 2, 2, 2, 1, 2, 1, False, 2 << 20, 10.0),
    Core("Cortex-A78", "Jetson Orin Nano, 1.5 GHz", DOTPROD, 1510, 6, 2, 2, 2, 1, 3, 2, False, 2 << 20, 12.0),
)


# Counting


def write_bundle(cfg: Path, precision: str, path: Path) -> list[tuple[str, int, int, int, int]]:
    """Write a network at a precision; return name, products, and bytes of weights, inputs and output of each step in order."""
    import numpy as np

    from mpnet.engine.assign import assign
    from mpnet.engine.calibrate import calibrate, range_requests
    from mpnet.engine.fuse import fuse_plan
    from mpnet.engine.operations import Convolve
    from mpnet.engine.options import resolve_options
    from mpnet.engine.prepare import Prepared
    from mpnet.export import Configuration, export
    from mpnet.formats.cfg.read import read_cfg
    from mpnet.kernels.isa import kernels
    from mpnet.model.quantization import ActivationOptions, QuantizationOptions
    from mpnet.model.weights import random_weights

    network = read_cfg(cfg)
    prepared = Prepared(network, random_weights(network), kernels())
    options = resolve_options(network)
    if precision == "int8":
        options = resolve_options(
            network, QuantizationOptions(activations=ActivationOptions(ranges="calibrated", mode="affine"))
        )
        images = [np.random.default_rng(1).random((1, *network.in_shape), np.float32)]
        ranges = calibrate(prepared, images, range_requests(network, options), {})
        options = replace(options, ranges=ranges.by_tensor())
    configuration = Configuration.from_prepared(prepared, assign(network, precision), options)
    path.write_bytes(export("bundle", configuration, "", {"no_profile": True}).files[".mpnet"])
    plan = fuse_plan(configuration.plan)
    steps = []
    for step in plan.steps:
        macs = weight_bytes = 0
        if isinstance(step.operation, Convolve):
            layer = step.operation.layer_of(network)
            macs, stored = layer.macs, step.operation.precision.stored.dtype.itemsize
            weight_bytes = layer.parameters * stored
        bytes_of = {
            slot: plan.slots[slot].precision.stored.dtype.itemsize * int(np.prod(plan.slots[slot].shape))
            for slot in (*step.inputs, step.output)
        }
        name = f"{step.operation.name} for {network.layers[step.layer].name}"
        inputs = sum(bytes_of[slot] for slot in step.inputs)
        steps.append((name, macs, weight_bytes, inputs, bytes_of[step.output]))
    return steps


def build_counter(folder: Path) -> dict[str, str]:
    """Build the plugin and an mprun with symbols into a folder; return where steps begin and the first pass ends."""
    plugin = ("gcc", "-O2", "-fPIC", "-shared", str(ROOT / "tests/counts/plugin.c"), "-o", str(folder / "plugin.so"))
    subprocess.run(plugin, check=True)
    objects = sorted(map(str, (ROOT / "build/mprun-arm/objects").rglob("*.o")))
    if not objects:
        raise SystemExit("build/mprun-arm/objects: holds nothing; run `make mprun-arm` first")
    program = str(folder / "mprun")
    subprocess.run(
        ["aarch64-linux-gnu-gcc", "-static", "-Wl,-z,norelro", *objects, "-lm", "-pthread", "-o", program], check=True
    )
    symbols = subprocess.run(["aarch64-linux-gnu-nm", program], capture_output=True, text=True, check=True).stdout
    found = {
        name: address for address, name in re.findall(r"^([0-9a-f]+) T (mpr_pass_step|mpr_pass_run)$", symbols, re.MULTILINE)
    }
    return {"begin": found["mpr_pass_step"], "end": found["mpr_pass_run"]}


def count_steps(folder: Path, marks: Mapping[str, str], bundle: Path, table: str) -> list[dict[str, int]]:
    """Return the instructions by kind of each step of the first pass of a bundle."""
    out = folder / "counts.txt"
    plugin = f"{folder / 'plugin.so'},out={out},begin={marks['begin']},end={marks['end']}"
    command = ["qemu-aarch64", "-cpu", CPUS[table], "-plugin", plugin, str(folder / "mprun"), str(bundle), "--bench"]
    process = subprocess.run([*command, "--isa", table, "--threads", "1", "--repeats", "1"], capture_output=True, text=True)
    if process.returncode:
        raise SystemExit(f"{bundle}: {process.stderr.strip() or process.returncode}")
    lines = [line for line in out.read_text().splitlines() if line.startswith("region")]
    return [{name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", line)} for line in lines]


def count(folder: Path, networks: Mapping[str, Path], precisions: Sequence[tuple[str, str]]) -> None:
    """Print the counts of networks, a line a step."""
    folder.mkdir(parents=True, exist_ok=True)
    marks = build_counter(folder)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for network, cfg in networks.items():
        for precision, table in precisions:
            bundle = folder / "net.mpnet"
            steps = write_bundle(cfg, precision, bundle)
            counted = count_steps(folder, marks, bundle, table)
            if len(counted) != len(steps):
                raise SystemExit(f"{cfg}: {len(steps)} steps, {len(counted)} were counted")
            for step, kinds in zip(steps, counted, strict=True):
                writer.writerow([network, precision, table, *step, *(kinds[kind] for kind in KINDS)])
            sys.stdout.flush()


# Tables


@dataclass(frozen=True)
class Published:
    """A measurement that somebody published.

    clock_mhz: of the board that was measured. precision: of mpnet, whose modelled time at that clock stands beside it.
    """

    network: str
    core: str
    board: str
    clock_mhz: float
    precision: str
    threads: int
    ms: float
    source: str


NCNN = "[ncnn](https://github.com/Tencent/ncnn/blob/master/benchmark/README.md)"
Q_ENGINEERING = "[Q-engineering, ncnn](https://github.com/Qengineering/YoloX-ncnn-Raspberry-Pi-4)"
WINOGRAD, HALVES = "fp32_winograd", "fp16_half_winograd"
"""Precisions of mpnet that stand beside ncnn's: it takes Winograd, and halves where the core computes in them."""
PUBLISHED = (
    Published("YOLOv4-tiny", "Cortex-A53", "Raspberry Pi Zero 2 W", 1000, WINOGRAD, 1, 1259, NCNN),
    Published("YOLOv4-tiny", "Cortex-A72", "Raspberry Pi 4", 1500, WINOGRAD, 1, 373, NCNN),
    Published("YOLOv4-tiny", "Cortex-A76", "Raspberry Pi 5", 2400, HALVES, 1, 68, NCNN),
    Published("YOLOv4-tiny", "Cortex-A53", "Raspberry Pi Zero 2 W", 1000, WINOGRAD, 4, 647, NCNN),
    Published("YOLOv4-tiny", "Cortex-A72", "Raspberry Pi 4", 1500, WINOGRAD, 4, 207, NCNN),
    Published("YOLOv4-tiny", "Cortex-A76", "Raspberry Pi 5", 2400, HALVES, 4, 46, NCNN),
    Published("Yolo-Fastest 1.1", "Cortex-A53", "Raspberry Pi Zero 2 W", 1000, WINOGRAD, 4, 99, NCNN),
    Published("Yolo-Fastest 1.1", "Cortex-A72", "Raspberry Pi 4", 1500, WINOGRAD, 4, 48, NCNN),
    Published("Yolo-Fastest 1.1", "Cortex-A76", "Raspberry Pi 5", 2400, HALVES, 4, 5.6, NCNN),
    Published("YOLOv8n", "Cortex-A72", "Raspberry Pi 4", 1950, WINOGRAD, 4, 323, Q_ENGINEERING),
    Published("YOLOv8n", "Cortex-A76", "Raspberry Pi 5", 2900, HALVES, 4, 50, Q_ENGINEERING),
)


def read_counts(path: Path) -> list[Count]:
    """Read what `count` printed. Raises: SystemExit naming what is none."""
    counts = []
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, fieldnames=HEADINGS):
            if row["network"] == "network":
                continue
            kinds = {kind: int(row[kind]) for kind in KINDS}
            macs, weights, inputs, output = (int(row[name]) for name in HEADINGS[4:8])
            counts.append(
                Count(row["network"], row["precision"], row["table"], row["step"], macs, weights, inputs, output, kinds)
            )
    if not counts:
        raise SystemExit(f"{path}: holds no counts")
    return counts


def read_peer(path: Path) -> dict[tuple[str, str], float]:
    """Return XNNPACK's instructions over mpnet's for Yolo-Fastest, by precision and kernel table (benchmarks/arm_counts.py)."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["of"] == "yolo-fastest-1.1"]
    return {(row["precision"], row["mpnet's table"]): float(row["XNNPACK M"]) / float(row["mpnet M"]) for row in rows}


def modelled_ms(counts: Sequence[Count], core: Core) -> dict[tuple[str, str], tuple[float, str]]:
    """Return the milliseconds of a pass and the kernel table, the fastest that a core has, by network and precision."""
    sums: dict[tuple[str, str, str], float] = {}
    for count in counts:
        if count.table in core.tables:
            key = count.network, count.precision, count.table
            sums[key] = sums.get(key, 0.0) + core.step_ms(count)
    best: dict[tuple[str, str], tuple[float, str]] = {}
    for (network, precision, table), ms in sums.items():
        if (network, precision) not in best or ms < best[network, precision][0]:
            best[network, precision] = ms, table
    return best


def table_lines(counts: Sequence[Count], peer: Mapping[tuple[str, str], float]) -> Iterator[str]:
    """Yield the tables of the page, as Markdown."""
    by_core = {core.name: modelled_ms(counts, core) for core in CORES}
    yield f"| network | program, precision | {' | '.join(f'{core.name}, {core.board}' for core in CORES)} |"
    yield "|---|---|" + "---|" * len(CORES)
    for network, precision in dict.fromkeys((count.network, count.precision) for count in counts):
        cells = [_cell(by_core[core.name].get((network, precision))) for core in CORES]
        yield f"| {network} | mpnet, {precision} | {' | '.join(cells)} |"
        if network.startswith("Yolo-Fastest") and any(key[0] == precision for key in peer):
            found = [by_core[core.name].get((network, precision)) for core in CORES]
            scaled = [None if cell is None else (cell[0] * peer[precision, cell[1]], cell[1]) for cell in found]
            yield f"| {network} | XNNPACK, {precision} | {' | '.join(map(_cell, scaled))} |"
    yield ""
    yield "| network | core, board | measured by | threads | measured ms | mpnet, one thread | modelled / measured |"
    yield "|---|---|---|---|---|---|---|"
    for row in PUBLISHED:
        core = next(replace(core, clock_mhz=row.clock_mhz) for core in CORES if core.name == row.core)
        ms = modelled_ms(counts, core).get((row.network, row.precision))
        if ms is not None:
            ratio = f"{ms[0] / row.ms:.2f} modelled" if row.threads == 1 else "-"
            board = f"{row.core}, {row.board} at {row.clock_mhz / 1e3:g} GHz"
            line = (row.network, board, row.source, str(row.threads), f"{row.ms:g}", f"{row.precision}: {_cell(ms)}", ratio)
            yield f"| {' | '.join(line)} |"


def _cell(ms: tuple[float, str] | None) -> str:
    return "no such instructions" if ms is None else f"{ms[0]:.{0 if ms[0] >= 100 else 1}f} modelled"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, dest="command")
    counting = commands.add_parser("count")
    counting.add_argument("folder", type=Path)
    counting.add_argument("networks", nargs="+", metavar="NAME=CFG")
    counting.add_argument("--precisions", default=PRECISIONS)
    writing = commands.add_parser("table")
    writing.add_argument("counts", nargs="?", type=Path, default=COUNTS)
    args = parser.parse_args()
    if args.command == "table":
        peer = read_peer(ROOT / "docs/results/arm-xnnpack.csv")
        print("\n".join(table_lines(read_counts(args.counts), peer)))
    if args.command == "count":
        networks = {name: Path(cfg) for name, _, cfg in (word.partition("=") for word in args.networks)}
        pairs = [(name, table) for name, _, table in (word.partition("@") for word in args.precisions.split(","))]
        count(args.folder.resolve(), networks, pairs)


if __name__ == "__main__":
    main()
