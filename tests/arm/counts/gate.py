"""What ARM kernels cost, without ARM hardware: executed instructions, modelled cycles, spills. Fails over a limit.

Usage: gate.py FOLDER     builds into FOLDER; prints a table. CC: the cross compiler.

Instructions are counted by a QEMU plugin and are exact; they differ a little between compilers, and the limits are for
Debian 12's gcc 12. Cycles are llvm-mca's model of the inner loop, not of caches.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from loops import hottest, innermost_loops, modelled_cycles

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "csrc"))

from isa_flags import COMMON, isa_flags  # noqa: E402

HERE = Path(__file__).parent
MCA = os.environ.get("LLVM_MCA", "llvm-mca-19")
SAVED = 8  # vector registers that a function keeps and restores: accesses to the stack that are no spill


@dataclass(frozen=True)
class Kernel:
    """A register tile and what it may cost.

    source:       file in csrc/arch with its inner loop, in `function`, whose multiplications are `multiply`.
    macs:         multiply-accumulates of an iteration of that loop.
    tile:         most instructions per multiply-accumulate of a whole tile.
    convolutions: the same of whole convolutions, 3x3 and 1x1, with all that belongs to them.
    models:       llvm-mca's cores, and the most multiply-accumulates that their pipes make in a cycle.
    share:        least part of that peak.
    """

    level: str
    cpu: str
    precision: str
    source: str
    function: str
    multiply: str
    macs: int
    tile: float
    convolutions: tuple[float, float]
    models: dict[str, int]
    share: float = 0.95


KERNELS = (
    Kernel("neon", "cortex-a57", "fp32", "arm_neon.c", "tile_f32", "fmla", 256, 0.335, (0.320, 0.322),
           {"cortex-a57": 4, "neoverse-n1": 8}),
    Kernel("neon", "cortex-a57", "fp16", "arm_neon.c", "tile_f32", "fmla", 256, 0.36, (0.322, 0.330),
           {"cortex-a57": 4, "neoverse-n1": 8}),
    Kernel("neon", "cortex-a57", "int8", "arm_neon.c", "tile_s8", "sadalp", 256, 0.26, (0.246, 0.250),
           {"cortex-a57": 8, "neoverse-n1": 8}),
    Kernel("neon_fp16", "a64fx", "fp16_half", "arm_neon_fp16.c", "tile_f16", r"fmla\s+v\d+\.8h", 1024, 0.165, (0.155, 0.159),
           {"neoverse-n1": 16}),
    Kernel("neon_dotprod", "cortex-a76", "int8", "arm_neon_dotprod.c", "tile_dot", "sdot", 1024, 0.086, (0.089, 0.091),
           {"neoverse-n1": 32}),
    # Putting two pixels into a vector takes the multipliers' own pipes: 24 of 27 of their instructions multiply.
    Kernel("neon_i8mm", "max,sve=off", "int8", "arm_neon_i8mm.c", "tile_mmla", "smmla", 768, 0.052, (0.061, 0.064),
           {"neoverse-n2": 64, "neoverse-v1": 128}, share=0.87),
)


class Gate:
    """Collects lines of a table and what is over its limit."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def line(self, kernel: Kernel, what: str, value: float, limit: float, *, least: bool = False, digits: int = 4) -> None:
        """One measured number beside its limit."""
        good = value >= limit if least else value <= limit
        sign = ">=" if least else "<="
        name = f"{kernel.level} {kernel.precision}"
        mark = "" if good else "   OVER THE LIMIT"
        print(f"{name:22s}{what:48s}{value:10.{digits}f}  {sign} {limit:.{digits}f}{mark}", flush=True)
        if not good:
            self.failures.append(f"{name}: {what} is {value:.{digits}f}, has to be {sign} {limit:.{digits}f}")


def counted(program: Path, plugin: Path, kernel: Kernel) -> list[tuple[str, int, dict[str, int]]]:
    """Of each part that kernels.c runs: its name, its multiply-accumulates, the instructions by kind."""
    counts = program.with_suffix(".txt")
    command = ["qemu-aarch64", "-cpu", kernel.cpu, "-plugin", f"{plugin},out={counts}", str(program),
               kernel.level, kernel.precision]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"{shlex.join(command)}: {run.stderr.strip() or run.returncode}")
    regions = [dict(re.findall(r"(\w+)=(\d+)", line)) for line in counts.read_text().splitlines() if line.startswith("region")]
    parts = [line.split("\t") for line in run.stdout.splitlines()]
    if not parts or len(regions) != len(parts):
        raise RuntimeError(f"{program}: {len(parts)} parts ran, {len(regions)} were counted")
    return [(part[1], int(part[2]), {name: int(value) for name, value in region.items()})
            for part, region in zip(parts, regions, strict=True)]


def check(kernel: Kernel, gate: Gate, folder: Path, compiler: list[str]) -> None:
    """All numbers of one kernel."""
    limits = (kernel.tile, *kernel.convolutions)
    for (part, macs, kinds), limit in zip(counted(folder / "kernels", folder / "plugin.so", kernel), limits, strict=True):
        gate.line(kernel, f"instructions per MAC, {part}", kinds["total"] / macs, limit)
        if part == "tile":
            gate.line(kernel, "vector accesses to the stack, tile", kinds["stack"], SAVED, digits=0)
    source = ROOT / "csrc" / "arch" / kernel.source
    obj = folder / f"{kernel.source}.o"
    flags = [*COMMON, *isa_flags(str(source), "aarch64"), f"-I{ROOT / 'csrc'}"]
    subprocess.run([*compiler, *flags, "-c", str(source), "-o", str(obj)], check=True)
    loop = hottest(innermost_loops("aarch64-linux-gnu-objdump", obj), kernel.function, kernel.multiply)
    gate.line(kernel, "spills in the inner loop", loop.spills, 0, digits=0)
    for core, peak in kernel.models.items():
        value = kernel.macs / modelled_cycles(MCA, core, loop)
        gate.line(kernel, f"MAC per cycle, {core} (of {peak})", value, kernel.share * peak, least=True, digits=2)


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    compiler = shlex.split(os.environ.get("CC", "aarch64-linux-gnu-gcc"))
    build = [sys.executable, str(ROOT / "tests/kernels/build_static.py"), str(HERE / "kernels.c"), str(folder / "kernels")]
    subprocess.run([*build, *compiler], check=True)
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", str(HERE / "plugin.c"),
                    "-o", str(folder / "plugin.so")], check=True)
    gate = Gate()
    for kernel in KERNELS:
        check(kernel, gate, folder, compiler)
    for failure in gate.failures:
        print(f"gate: {failure}", file=sys.stderr)
    return bool(gate.failures)


if __name__ == "__main__":
    sys.exit(main())
