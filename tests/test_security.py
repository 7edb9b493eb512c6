# SPDX-License-Identifier: MIT
"""What SECURITY.md says of mpnet's own code: no pickle, no shell, no text that is run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "system", "popen"}
FORBIDDEN_LOADERS = {"load", "load_all", "full_load", "unsafe_load", "Loader", "FullLoader", "UnsafeLoader"}
"""Of yaml: what makes objects of any class."""
FORBIDDEN_IN_C = r"\b(system|strcpy|popen|exec[lv]\w*|gets|strcat|v?sprintf|sscanf|alloca|tmpnam|mktemp)\s*\("


def test_no_pickle_no_shell_no_eval(repository: Path) -> None:
    offences = []
    for path in sorted((repository / "mpnet").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {(node.module or "").split(".")[0]}
            else:
                names = set()
            called_name = ""
            if isinstance(node, ast.Call):
                function = node.func
                called_name = function.id if isinstance(function, ast.Name) else ""
                if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "os":
                    called_name = function.attr
                if any(keyword.arg in ("shell", "allow_pickle") for keyword in node.keywords):
                    called_name = "eval"
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "yaml" and node.attr in FORBIDDEN_LOADERS:
                called_name = "eval"
            if names & FORBIDDEN_MODULES or called_name in FORBIDDEN_CALLS:
                offences.append(f"{path.relative_to(repository)}:{getattr(node, 'lineno', 0)}")
    assert offences == []


def test_no_shell_and_no_unbounded_text_in_c(repository: Path) -> None:
    offences = [
        f"{path.relative_to(repository)}: {match[0]}"
        for path in sorted((repository / "csrc").rglob("*.[ch]"))
        for match in re.finditer(FORBIDDEN_IN_C, path.read_text(encoding="utf-8"))
    ]
    assert offences == []
