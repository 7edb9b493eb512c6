# SPDX-License-Identifier: MIT
"""Builds fuzz targets of the C core: coverage-guided with clang's libFuzzer, or to replay files with any compiler.

python tests/fuzz/build.py TARGET OUT COMPILER [replay]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
_CORE = ("*.c", "conv/*.c", "detect/*.c", "image/*.c", "quantize/*.c", "arch/scalar.c", "arch/arm_packing.c")
TARGETS: dict[str, tuple[str, ...]] = {"jpeg": ("image/*.c",), "bundle": (*_CORE, "mprun/[!m]*.c")}
"""Each C entry that reads files, with its sources in csrc/; its file is tests/fuzz/<name>_target.c."""
SANITIZERS = "address,undefined"


def build(target: str, out: Path, compiler: str, replay: bool) -> None:
    """Compile one target. Raises: RuntimeError with what the compiler said."""
    sources = [path for pattern in TARGETS[target] for path in sorted((ROOT / "csrc").glob(pattern))]
    driver = [ROOT / "tests/fuzz/replay.c"] if replay else []
    command = [
        compiler,
        "-g",
        "-O1",
        f"-fsanitize={SANITIZERS}" + ("" if replay else ",fuzzer"),
        "-fno-sanitize-recover=undefined",
        "-std=gnu11",
        "-DMP_RED_ZONE=64",
        "-DMP_ONLY_SCALAR",
        "-pthread",
        f"-I{ROOT / 'csrc'}",
        str(ROOT / f"tests/fuzz/{target}_target.c"),
        *map(str, driver + sources),
        "-o",
        str(out),
        "-lm",
    ]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{made.stderr}")


def can_build(compiler: str, replay: bool) -> bool:
    """Whether a compiler is here with what it needs: clang's libFuzzer, or a sanitizer's library."""
    flags = f"-fsanitize={SANITIZERS}" + ("" if replay else ",fuzzer-no-link")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "a.c"
        body = "" if replay else "int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n ? 0 : 0; }"
        source.write_text(body or "int main(void) { return 0; }")
        try:
            return (
                subprocess.run(
                    [compiler, flags.replace("-no-link", ""), str(source), "-o", f"{folder}/a"],
                    capture_output=True,
                    check=False,
                ).returncode
                == 0
            )
        except OSError:
            return False


if __name__ == "__main__":
    build(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4:] == ["replay"])
