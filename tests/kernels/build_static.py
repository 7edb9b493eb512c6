"""Builds a C program with the C core into one static executable: build_static.py SOURCE PROGRAM [CC...] [-- FLAGS...]

Each file gets the flags of its ISA level, as in the package.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "csrc"))

from isa_flags import COMMON, isa_flags  # noqa: E402


def main() -> int:
    source, program = Path(sys.argv[1]), Path(sys.argv[2])
    rest = sys.argv[3:]
    at = rest.index("--") if "--" in rest else len(rest)
    compiler, flags = rest[:at] or ["gcc"], rest[at + 1:] or ["-static"]
    target = subprocess.run([*compiler, "-dumpmachine"], capture_output=True, text=True, check=True).stdout.strip()
    program.parent.mkdir(parents=True, exist_ok=True)
    core = [file for folder in (".", "arch", "conv") for file in (ROOT / "csrc" / folder).glob("*.c")] + [source]
    with tempfile.TemporaryDirectory() as folder:
        objects = []
        for number, file in enumerate(sorted(core)):
            objects.append(str(Path(folder) / f"{number}.o"))
            command = [*compiler, *COMMON, *flags, *isa_flags(str(file), target), f"-I{ROOT / 'csrc'}", "-c", str(file)]
            subprocess.run([*command, "-o", objects[-1]], check=True)
        subprocess.run([*compiler, *flags, *objects, "-o", str(program), "-lm"], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
