"""Builds levels.c with the C core into one static program: build_levels.py PROGRAM [CC...] [-- FLAGS...]

Each file gets the flags of its ISA level, as in the package.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "csrc"))

from build_ext import COMMON, isa_flags  # noqa: E402


def main() -> int:
    program = Path(sys.argv[1])
    rest = sys.argv[2:]
    at = rest.index("--") if "--" in rest else len(rest)
    compiler, flags = rest[:at] or ["gcc"], rest[at + 1:] or ["-static"]
    target = subprocess.run([*compiler, "-dumpmachine"], capture_output=True, text=True, check=True).stdout.strip()
    program.parent.mkdir(parents=True, exist_ok=True)
    core = [*(ROOT / "csrc").glob("*.c"), *(ROOT / "csrc" / "arch").glob("*.c"), ROOT / "tests" / "kernels" / "levels.c"]
    with tempfile.TemporaryDirectory() as folder:
        objects = []
        for number, source in enumerate(sorted(core)):
            objects.append(str(Path(folder) / f"{number}.o"))
            command = [*compiler, *COMMON, *flags, *isa_flags(str(source), target), f"-I{ROOT / 'csrc'}", "-c", str(source)]
            subprocess.run([*command, "-o", objects[-1]], check=True)
        subprocess.run([*compiler, *flags, *objects, "-o", str(program), "-lm"], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
