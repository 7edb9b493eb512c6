# SPDX-License-Identifier: MIT
"""The C core without Python, built once per compiler and flags and shared by all that looks at it: programs over its library,
tests that read its objects. csrc/mprun/Makefile does it, on all cores, and only what changed.

core.py [-DNAME=VALUE...] SOURCE PROGRAM [CC...] [-- FLAGS...]     a program of one C file over the library, FLAGS for both;
                                        without any it is static. The definitions in front are the source's own.
core.py --extension FOLDER [CC...] [-- FLAGS...]                   _core.abi3.so, which this Python can load
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "csrc"))

from isa_flags import COMMON  # noqa: E402

# What `make mprun` and `make mprun-arm` build, so that they find it built.
_FOLDERS = {"gcc": "build/mprun", "aarch64-linux-gnu-gcc": "build/mprun-arm"}
# Words of /proc/cpuinfo without which nothing can run a level.
_NEEDS = {
    "avx2": {"avx2"},
    "avx512": {"avx512dq", "avx512bw", "avx512vl"},
    "avx512vnni": {"avx512_vnni"},
    "avx512amx": {"avx512_vnni"},
}


def _unsanitized(compiler: list[str], flags: list[str]) -> list[str]:
    """Return files of levels that no program of these flags runs on this machine."""
    cpuinfo = Path("/proc/cpuinfo")
    if compiler[0].startswith("aarch64") or platform.machine() != "x86_64" or not cpuinfo.exists() or "-static" in flags:
        return []
    words = set(cpuinfo.read_text(encoding="utf-8").split())
    return [f"arch/x86_{level}.c" for level, required_words in _NEEDS.items() if not required_words <= words]


def core(compiler: list[str], flags: list[str], *targets: str) -> Path:
    """Make `targets` of csrc/mprun/Makefile, such as libmprun.a or objects/arch/scalar.o; return their folder. Other processes
    wait.

    Raises: RuntimeError with what make said.
    """
    name = shlex.join([*compiler, *(flag for flag in flags if flag != "-Werror")])  # which gives the same objects
    folder = ROOT / _FOLDERS.get(name, f".cache/core/{compiler[0]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}")
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        "make",
        "-s",
        f"-j{len(os.sched_getaffinity(0))}",
        "-C",
        str(ROOT / "csrc/mprun"),
        f"CC={shlex.join(compiler)}",
        f"CFLAGS={shlex.join(flags)}",
        f"UNSANITIZED={' '.join(_unsanitized(compiler, flags))}",
        f"OUT={folder}",
        *(f"{folder}/{target}" for target in targets),
    ]
    # A make above this one would hand down its own flags.
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if process.returncode:
        raise RuntimeError(f"{shlex.join(command)}\n{process.stdout}{process.stderr}")
    return folder


def extension(destination: Path, compiler: list[str], flags: list[str], *include: Path) -> None:
    """Build the package's extension module over the same objects, in the folder `destination`; include: Python's headers."""
    from build_ffi import ffi

    destination.mkdir(parents=True, exist_ok=True)
    ffi.emit_c_code(str(destination / "_core.c"))
    library = core(compiler, flags, "libmprun.a") / "libmprun.a"
    include_flags = [f"-I{folder}" for folder in (ROOT / "csrc", *include)]
    arguments = [
        "-shared",
        "-pthread",
        "-fPIC",
        *include_flags,
        str(destination / "_core.c"),
        str(library),
        "-lm",
        "-o",
        str(destination / "_core.abi3.so"),
    ]
    subprocess.run([*compiler, *COMMON, *flags, *arguments], check=True)


def main() -> int:
    words = sys.argv[1:]
    source_index = next(number for number, word in enumerate(words) if not word.startswith("-D"))
    defines, (source, program, *remainder) = words[:source_index], words[source_index:]
    separator = remainder.index("--") if "--" in remainder else len(remainder)
    compiler, flags = remainder[:separator] or ["gcc"], remainder[separator + 1 :]
    if source == "--extension":
        extension(Path(program), compiler, flags, Path(sysconfig.get_path("include")))
        return 0
    library = core(compiler, flags, "libmprun.a") / "libmprun.a"
    Path(program).parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            *compiler,
            *COMMON,
            *(flags or ["-static"]),
            *defines,
            f"-I{ROOT / 'csrc'}",
            source,
            str(library),
            "-o",
            program,
            "-lm",
            "-pthread",
        ],
        check=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
