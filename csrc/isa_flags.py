"""The compiler flags of each C file: what it may use is decided by its name alone (isa_flags.txt). No -march=native anywhere.

Apart from the build itself, so that tests can build C programs where there is no setuptools.
"""

from __future__ import annotations

import os


def _rows() -> list[list[str]]:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "isa_flags.txt")
    with open(path, encoding="utf-8") as file:
        return [line.split() for line in file if line.strip() and not line.startswith("#")]


# File name prefix in csrc/arch/ -> (architecture prefix of the compiler's target, flags).
ISA_FLAGS: dict[str, tuple[str, list[str]]] = {name: (architecture, flags) for name, architecture, *flags in _rows()}
COMMON: list[str] = ISA_FLAGS.pop("all")[1]


def isa_flags(source: str, target: str) -> list[str]:
    """The extra flags of one file. The longest matching prefix wins; a file of another architecture gets none."""
    stem = os.path.basename(source)
    for prefix in sorted(ISA_FLAGS, key=len, reverse=True):
        if stem.startswith(prefix):
            architecture, flags = ISA_FLAGS[prefix]
            return flags if target.startswith(architecture) else []
    return []
