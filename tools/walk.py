# SPDX-License-Identifier: MIT
"""What a stranger reads to follow a command: its story's files and those that they call, in order of the first call.

Usage: walk.py COMMAND..., for example: walk.py run experiments/demo.yaml. The rooms cli, resolve and trial tell the story;
counted are their files and each file that a function of theirs calls while the command works, not what those call in turn,
nor what Python runs while it imports. A return is a room that the walk enters again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import mpnet
from mpnet.__main__ import main

ROOT = Path(mpnet.__file__).resolve().parent
STORY = ("cli", "resolve", "trial")


def _file(frame: FrameType | None) -> Path | None:
    name = Path("" if frame is None else frame.f_code.co_filename)
    return name.relative_to(ROOT) if name.is_relative_to(ROOT) else None


def _imports(frame: FrameType | None) -> bool:
    """Whether it runs because a module is being imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and _file(frame) not in (None, Path("__main__.py")):
            return True
        frame = frame.f_back
    return False


def walk(arguments: list[str]) -> list[Path]:
    """Return the files that are walked, as paths below mpnet/."""
    visited: dict[Path, None] = {}

    def record_call(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        file, caller = _file(frame), _file(frame.f_back)
        is_counted = file is not None and (file.parts[0] in STORY or (caller is not None and caller.parts[0] in STORY))
        if file is not None and is_counted and file not in visited and not _imports(frame):
            visited[file] = None

    sys.argv = ["mpnet", *arguments]
    sys.setprofile(record_call)
    try:
        main()
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
    return list(visited)


if __name__ == "__main__":
    files = walk(sys.argv[1:])
    rooms = [file.parent for file in files]
    entered = [room for number, room in enumerate(rooms) if number == 0 or room != rooms[number - 1]]
    print(*files, f"{len(files)} files, {len(entered) - len(set(entered))} returns", sep="\n", file=sys.stderr)
