# SPDX-License-Identifier: MIT
"""Writes csrc/mprun/operations.def, what mprun must know of each operation, from the classes in mpnet/engine/operations.

The file is committed, so that mprun is built by make and a C compiler alone; tests/mprun/test_operations.py compares.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Iterator

import mpnet.engine.rules  # noqa: F401  which imports every operation
from mpnet.engine.operations.base import Operation

TARGET = Path(__file__).resolve().parents[1] / "csrc" / "mprun" / "operations.def"
HEAD = """\
/* SPDX-License-Identifier: MIT */
/* Written by tools/list_operations.py from the classes in mpnet/engine/operations: change those, and run it.
 * OPERATION(its number, MPB_... of bundle.h; the name of its class; whether it moves values; whether it checks its result). */
"""


def subclasses(cls: type[Operation]) -> Iterator[type[Operation]]:
    """Yield all classes derived from `cls`, directly or not."""
    for subclass in cls.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


def classes_by_bundle_name() -> dict[str, list[type[Operation]]]:
    """Return the classes that bundles store under each name, first the one that the name is taken from."""
    classes: dict[str, list[type[Operation]]] = defaultdict(list)
    for cls in dict.fromkeys(subclasses(Operation)):
        if cls.bundle and cls.__module__.startswith("mpnet."):
            classes[cls.bundle].append(cls)
    for name, members in classes.items():
        members.sort(key=lambda cls: (cls.__name__.upper() != name.replace("_", ""), "bundle" not in vars(cls)))
    return dict(classes)


def table() -> str:
    """Return the text of operations.def as it should be."""
    rows = [
        f'OPERATION({name}, "{cls.__name__}", {int(cls.moves_values)}, {int(cls.checks_result)})\n'
        for name, (cls, *_) in sorted(classes_by_bundle_name().items())
    ]
    return HEAD + "".join(rows)


if __name__ == "__main__":
    TARGET.write_text(table(), encoding="utf-8")
