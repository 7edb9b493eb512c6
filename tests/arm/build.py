# SPDX-License-Identifier: MIT
"""The package for arm64 in a folder: `build.py ROOT OUT`.

ROOT is the folder that root.sh made (its headers are used); OUT receives mpnet/ with an arm64 extension module, of the objects
that `make mprun-arm` has as well. CC names the cross compiler.
"""

from __future__ import annotations

import compileall
import os
import shlex
import shutil
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY)]

from tests.core import extension  # noqa: E402


def main() -> int:
    root, output_folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    compiler = shlex.split(os.environ.get("CC", "aarch64-linux-gnu-gcc"))
    package = output_folder / "mpnet"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(REPOSITORY / "mpnet", package, ignore=shutil.ignore_patterns("*.so", "_core.c", "__pycache__"))
    extension(package / "kernels", compiler, [], root / "usr/include/python3.11", root / "usr/include")
    if sys.version_info[:2] == (3, 11):  # as in ROOT; emulated, each process would do it anew
        compileall.compile_dir(package, quiet=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
