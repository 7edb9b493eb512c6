# SPDX-License-Identifier: MIT
"""Builds fuzz targets of the C core, and programs that give files to them.

python tests/fuzz/build.py TARGET OUT KIND [COMPILER]. The first three kinds have address and undefined-behaviour sanitizers:
hunting    by clang's libFuzzer, guided by coverage, with all kernel tables of this machine
scalar     the same with scalar kernels alone, which is built in seconds
replayed   scalar kernels, over files and over files with changes (replay.c), by any compiler
guarded    likewise over the objects that users have, all tables, with a page that nobody may touch behind every block (guard.c)
emulated   one static program that has its files in it, for tests/kernels/bochs/run.sh
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.core import core  # noqa: E402

TARGETS = ("jpeg", "bundle", "command")
"""Each C entry that takes what users give it; its file is tests/fuzz/<name>_target.c."""
WORK = ROOT / ".cache" / "fuzz"
"""What hunts build, and where they work."""
COMMANDS = ("evaluate", "bench", "profile", "info", "output")
"""Objects of the program mprun that its library lacks."""
SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-DMP_RED_ZONE=64")
GUARDED = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free,--wrap=posix_memalign"
EMULATED = ("-static", "-DMP_EMULATED_TILES")
"""As tests/kernels/bochs/check.sh builds the core."""


@dataclass(frozen=True)
class Kind:
    """flags: of the target. core: of objects that csrc/mprun/Makefile makes. extra_sources: sources beside the target's."""

    flags: tuple[str, ...]
    core: tuple[str, ...]
    link: tuple[str, ...] = ()
    extra_sources: tuple[str, ...] = ()


# To optimise kernels with sanitizers in them takes a minute; the few thousand files of a test are then read 3 s sooner.
_SCALAR = (*SANITIZED, "-O0", "-DMP_ONLY_SCALAR")
_HUNTING = (*SANITIZED, "-O1")
KINDS = {
    "hunting": Kind((*_HUNTING, "-fsanitize=fuzzer"), (*_HUNTING, "-fsanitize=fuzzer-no-link")),
    "scalar": Kind((*_SCALAR, "-fsanitize=fuzzer"), (*_SCALAR, "-fsanitize=fuzzer-no-link")),
    "replayed": Kind(_SCALAR, _SCALAR, extra_sources=("replay.c",)),
    "guarded": Kind(("-g", "-O1"), (), (GUARDED,), ("replay.c", "guard.c")),
    "emulated": Kind(("-O1", "-static"), EMULATED, extra_sources=("replay.c",)),
}


def build(target: str, program: Path, kind: str, compiler: str = "", inputs: tuple[Path, ...] = (), runs: int = 0) -> None:
    """Compile one target.

    compiler: "" for the one that the kind needs. inputs, runs: the files of an emulated program, and how often it changes one.
    Raises: RuntimeError with what the compiler said, before minutes of compiling where it lacks something.
    """
    compiler = compiler or ("clang" if kind in ("hunting", "scalar") else "gcc")
    lacking = find_lacking(compiler, kind)
    if lacking:
        raise RuntimeError(f"{compiler} cannot build the kind {kind!r} (Debian: clang and libclang-rt-dev, or gcc):\n{lacking}")
    print("building", program, "...", file=sys.stderr, flush=True)  # all tables take minutes the first time
    recipe = KINDS[kind]
    if kind == "replayed" and can_build(compiler, "scalar"):
        recipe = replace(recipe, core=KINDS["scalar"].core)  # compiled once for both
    names = [*(f"objects/mprun/{name}.o" for name in COMMANDS if target == "command"), "libmprun.a"]
    if target == "jpeg":  # it needs no kernels, which take most of the time to compile
        names = [f"objects/image/{source.stem}.o" for source in sorted(ROOT.glob("csrc/image/*.c"))]
    folder = core([compiler], list(recipe.core), *names)
    sources = [
        FOLDER / f"{target}_target.c",
        *(FOLDER / name for name in recipe.extra_sources),
        *(folder / name for name in names),
    ]
    defines = []
    if kind == "emulated":
        sources.insert(1, _embedded(inputs, program.with_suffix(".S")))
        # Bochs 2.7 rounds some ties of vcvtps2ph away from even, for all vector tables alike.
        defines = ["-DEMBEDDED", f"-DRUNS={runs}", "-DSEED=1", '-DLEFT_OUT="scalar"']
    command = [
        *(compiler, *recipe.flags, *defines, "-std=gnu11", "-pthread", f"-I{ROOT / 'csrc'}"),
        *(*map(str, sources), *recipe.link, "-o", str(program), "-lm"),
    ]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{process.stderr}")


def _embedded(inputs: tuple[Path, ...], path: Path) -> Path:
    """Write an assembler file with the contents of others."""
    lines = [".section .rodata", ".balign 64"]
    for number, file in enumerate(inputs):
        lines += [f'data{number}: .incbin "{file}"', f"end{number}: .balign 64"]
    lines += [".balign 8", ".global embedded, embedded_sizes, embedded_count", "embedded:"]
    lines += [f".quad data{number}" for number in range(len(inputs))]
    lines += ["embedded_sizes:", *(f".quad end{number} - data{number}" for number in range(len(inputs)))]
    lines += ["embedded_count:", f".quad {len(inputs)}", '.section .note.GNU-stack,"",@progbits']
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def under_disk() -> None:
    """Start this program again with disk.c between it and its disk, unless it is there.

    Raises: SystemExit with a line where that cannot be built.
    """
    if hasattr(ctypes.CDLL(None), "disk_calls"):
        return
    if not has_disk():
        sys.exit("fuzz: disk.c, which faults are injected by, is for Linux and built by gcc; install gcc")
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        built_library, library = Path(folder) / "disk.so", WORK / "disk.so"
        flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        subprocess.run(["gcc", *flags, str(FOLDER / "disk.c"), "-o", str(built_library), "-ldl"], check=True)
        built_library.replace(library)  # another process may have the old one loaded
    os.environ["LD_PRELOAD"] = str(library)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def has_disk() -> bool:
    """Return whether faults of disk and memory can be injected here."""
    return sys.platform.startswith("linux") and shutil.which("gcc") is not None


def can_build(compiler: str, kind: str) -> bool:
    """Return whether a compiler is here with what it needs: clang's libFuzzer, or a sanitizer's library."""
    return not find_lacking(compiler, kind)


def find_lacking(compiler: str, kind: str) -> str:
    """Return what a compiler says that lacks something for a kind, '' where it builds an empty program of it."""
    body = "int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n ? 0 : 0; }"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "a.c"
        source.write_text(body if "-fsanitize=fuzzer" in KINDS[kind].flags else "int main(void) { return 0; }")
        command = [compiler, *KINDS[kind].flags, str(source), "-o", f"{folder}/a"]
        try:
            process = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            return str(error)
        return (process.stderr or f"exit status {process.returncode}") if process.returncode else ""


def inputs_of(target: str) -> tuple[Path, ...]:
    """Return the seeds of a target and what hunts have found."""
    return tuple(path for folder in ("corpus", "findings") for path in sorted((FOLDER / folder / target).glob("*")))


if __name__ == "__main__":
    target, out, *other_arguments = sys.argv[1:]
    try:
        build(target, Path(out), *other_arguments)
    except RuntimeError as error:
        sys.exit(str(error))
