# SPDX-License-Identifier: MIT
"""The command `mixbench`: its parts by name, those that run networks only where mpnet is installed."""

from __future__ import annotations

import importlib
import sys

from mixbench.errors import BenchmarkError, require_mpnet

COMMANDS = {
    "run": "run methods on problems and write their submissions",
    "score": "score submissions",
    "page": "draw a page of submissions (matplotlib)",
    "intervals": "compare picks with the exact front's on the images that judge, with intervals (mpnet)",
    "elsewhere": "run an exact front on the images of another problem (mpnet)",
    "table": "make a problem's table, or hold one against new runs (mpnet)",
}
"""The modules that are commands, and what each does."""


def main() -> int:
    """Run the command that the first argument names. Result: exit code."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        print("usage: mixbench COMMAND ...\n")
        for command, description in COMMANDS.items():
            print(f"  {command:10} {description}")
        return 0
    try:
        if name not in COMMANDS:
            raise BenchmarkError(f"{name[:60]!r} is no command; there are {', '.join(COMMANDS)}")
        if COMMANDS[name].endswith("(mpnet)"):
            require_mpnet(f"mixbench {name}")
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return int(importlib.import_module(f"mixbench.{name}").main(arguments))


if __name__ == "__main__":
    sys.exit(main())
