# SPDX-License-Identifier: MIT
"""Lines of code in mpnet/ and csrc/: without comments, docstrings and blank lines, as ruff format and clang-format write them.

Usage: count_code.py [TREE]
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def python_lines(text: str) -> int:
    """Count the lines of Python that hold code."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            code |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            code -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(code)


def c_lines(text: str) -> int:
    """Count the lines of C that hold code."""
    plain = re.sub(r"/\*.*?\*/", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.DOTALL)
    return sum(bool(re.sub("//.*", "", line).strip()) for line in plain.splitlines())


def main() -> None:
    """Run the command."""
    tree = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    python = sum(python_lines(path.read_text(encoding="utf-8")) for path in (tree / "mpnet").rglob("*.py"))
    c = sum(c_lines(path.read_text(encoding="utf-8")) for path in (tree / "csrc").rglob("*.[ch]"))
    print(f"mpnet/ {python}  csrc/ {c}  together {python + c}")


if __name__ == "__main__":
    main()
