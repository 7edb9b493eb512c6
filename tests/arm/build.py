"""Cross-builds the package for arm64 into a folder: `build.py ROOT OUT`.

ROOT is the folder that root.sh made (its headers are used); OUT receives mpnet/ with an arm64 extension module. The
flags of each file are those of an ordinary build (csrc/isa_flags.py). CC names the cross compiler.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "csrc"))

from build_ffi import ffi, sources  # noqa: E402
from isa_flags import COMMON, isa_flags  # noqa: E402


def main() -> int:
    root, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    compiler = shlex.split(os.environ.get("CC", "aarch64-linux-gnu-gcc"))
    package, objects = out / "mpnet", out / "objects"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(REPOSITORY / "mpnet", package, ignore=shutil.ignore_patterns("*.so", "_core.c", "__pycache__"))
    objects.mkdir(parents=True, exist_ok=True)
    module = objects / "_core.c"
    ffi.emit_c_code(str(module))
    include = [f"-I{REPOSITORY / 'csrc'}", f"-I{root / 'usr/include/python3.11'}", f"-I{root / 'usr/include'}"]

    def compile_one(source: Path) -> str:
        name = "-".join(source.relative_to(source.parents[1]).parts)
        target = objects / f"{name}.o"
        flags = [*COMMON, "-Werror", "-pthread", "-fPIC", *isa_flags(str(source), "aarch64")]
        # cffi's own generated file is not held to our warnings.
        if source == module:
            flags.remove("-Werror")
        subprocess.run([*compiler, *flags, *include, "-c", str(source), "-o", str(target)], check=True)
        return str(target)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(compile_one, [module, *sources]))
    library = str(package / "kernels" / "_core.abi3.so")
    subprocess.run([*compiler, "-shared", "-pthread", *made, "-lm", "-o", library], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
