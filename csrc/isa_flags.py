# SPDX-License-Identifier: MIT
"""The compiler flags of each C file: what it may use is decided by its name alone (isa.def). No -march=native anywhere.

Apart from the build itself, so that tests can build C programs where there is no setuptools.
"""

from __future__ import annotations

import os
import re

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "isa.def"), encoding="utf-8") as _file:
    _ROWS = _file.read()
COMMON: list[str] = re.findall(r'^FLAGS_OF_ALL\("(.*)"\)', _ROWS, re.MULTILINE)[0].split()
# Kind of level -> (prefix of its file in csrc/arch/, machine in the name of the compiler's target that its flags are for).
_KINDS = {"X86": ("x86_", "x86_64"), "ARM": ("arm_", "aarch64"), "REFERENCE": ("", "aarch64")}


def isa_flags(source: str, target: str) -> list[str]:
    """The extra flags of one file: those of the level that it is named after, if that is one of the compiler's target."""
    for kind, name, flags in re.findall(r'^(\w+)_LEVEL\((\w+),.*"(.*)"\)', _ROWS, re.MULTILINE):
        prefix, machine = _KINDS[kind]
        if os.path.basename(source) == f"{prefix}{name}.c" and target.startswith(machine):
            return str(flags).split()
    return []
