# SPDX-License-Identifier: MIT
"""Describes the extension module mpnet.kernels._core to cffi.

The declarations are the marked blocks of the headers themselves, so there is never a second copy of the C API.
"""

from __future__ import annotations

import re
from pathlib import Path

from cffi import FFI

CSRC = Path(__file__).resolve().parent
BLOCK = re.compile(r"/\* cdef begin \*/\n(.*?)/\* cdef end \*/", re.DOTALL)

# mpnet.h first: the others use its types.
headers = [CSRC / "mpnet.h", *sorted(p for p in CSRC.rglob("*.h") if p.name != "mpnet.h")]
# mprun/ is a program of its own.
sources = sorted(p for p in CSRC.rglob("*.c") if p.relative_to(CSRC).parts[0] != "mprun")

ffi = FFI()
declared = []
for header in headers:
    blocks = BLOCK.findall(header.read_text(encoding="utf-8"))
    if blocks:
        declared.append(header)
        ffi.cdef("\n".join(blocks))

ffi.set_source(
    "mpnet.kernels._core",
    "\n".join(f'#include "{header.relative_to(CSRC).as_posix()}"' for header in declared),
    sources=[source.relative_to(CSRC.parent).as_posix() for source in sources],
    include_dirs=["csrc"],
    depends=[h.relative_to(CSRC.parent).as_posix() for h in CSRC.rglob("*") if h.suffix in (".h", ".def")],
)

if __name__ == "__main__":
    ffi.compile(verbose=True)
