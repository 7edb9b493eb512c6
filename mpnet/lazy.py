# SPDX-License-Identifier: MIT
"""Public names of a package that are imported when somebody asks for them, so that importing the package is quick."""

from __future__ import annotations

import importlib
import sys
from typing import Callable, Mapping


def lazy_names(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """Return a module's `__getattr__` (PEP 562) that imports names from the modules that hold them."""
    module_of = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
