# SPDX-License-Identifier: MIT
"""Imports flow one way; a file that breaks the order is named."""

from __future__ import annotations

import ast
import re
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

# Lower stands for lower in the house: a room may import itself and what stands below it.
FLOORS = (
    {"arrays", "errors", "json_values", "lazy", "messages", "progress"},
    {"packages", "model", "data"},
    {"config", "tables"},
    {"kernels"},
    {"formats"},
    {"quantization"},
    {"engine"},
    {"detection"},
    {"export", "importing"},
    {"backends"},
    {"evaluation"},
    {"speed", "tuning"},
    {"trial"},
    {"sweep"},
    {"resolve", "diagnose"},
    {"deploy"},
    {"report"},
    {"api", "demo"},
    {"cli"},
    {"__main__"},
)
LEVEL = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# The same inside of rooms that have rooms of their own: their files and folders.
INNER_FLOORS = {
    "importing": (
        {"graph", "layer_graph", "heads"},
        {"file_metadata", "operators"},
        {"choices", "readers"},
        {"passes", "write"},
        {"model"},
        {"__init__"},
    ),
    "report": (
        {"colours"},
        {"data"},
        {"collect", "text", "html"},
        {"__init__", "export", "live", "model_explorer", "statement", "tracking"},
    ),
    "sweep": (
        {"layer_ranks"},
        {"result"},
        {"store"},
        {"problem"},
        {"evaluate"},
        {"search"},
        {"setup"},
        {"choose"},
        {"run"},
        {"forecast"},
    ),
}
# The rooms of csrc/ and the other rooms that each may include; "" is csrc/ itself.
ROOMS = {
    "": {"conv"},
    "conv": {""},
    "kernels": {""},
    "arch": {"", "kernels"},
    "detect": {""},
    "image": {""},
    "quantize": {""},
    "mprun": {"", "detect", "image", "quantize"},
}
INCLUDE = re.compile(r'^ *#include "([^"]+)"', re.MULTILINE)
C_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
C_WORD = re.compile(r"\w+")
# The name of a function that other files can call, where it is defined.
C_FUNCTION = re.compile(r"^(?!static|typedef|extern|enum|return|#)[a-z][\w *]*?(\w+)\([^;{]*\)\s*\{", re.MULTILINE)


def imported(path: Path, package: str = "mpnet") -> set[str]:
    """Return the folders and modules of a package that a file imports."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module] if node.module != package else [f"{package}.{alias.name}" for alias in node.names]
        modules |= {name.removeprefix(f"{package}.").split(".")[0] for name in names if name.startswith(f"{package}.")}
    return modules


def test_imports_flow_one_way(repository: Path) -> None:
    offences = []
    for path in sorted((repository / "mpnet").rglob("*.py")):
        path_names = path.relative_to(repository / "mpnet").parts
        room = path_names[0].removesuffix(".py")
        for imported_room in imported(path) - {room, "__version__"}:
            if room != "__init__" and LEVEL[imported_room] >= LEVEL[room]:
                offences.append(f"{path}: {room} imports {imported_room}")
    assert offences == []


@pytest.mark.parametrize("room", INNER_FLOORS)
def test_imports_inside_of_a_room_flow_one_way(room: str, repository: Path) -> None:
    level = {name: floor for floor, names in enumerate(INNER_FLOORS[room]) for name in names}
    offences = []
    for path in sorted((repository / "mpnet" / room).rglob("*.py")):
        module = path.relative_to(repository / "mpnet" / room).parts[0].removesuffix(".py")
        offences += [
            f"{path}: {module} imports {imported_module}"
            for imported_module in imported(path, f"mpnet.{room}") - {module}
            if imported_module in level and level[imported_module] >= level[module]
        ]
    assert offences == []


def imported_files(path: Path, root: Path) -> set[Path]:
    """Return the files below `root`/mpnet that a file names in imports, those for type checkers included."""

    def file_of(module: str) -> Path | None:
        candidates = (root / (module.replace(".", "/") + suffix) for suffix in (".py", "/__init__.py"))
        return next((candidate for candidate in candidates if candidate.is_file()), None)

    files: set[Path | None] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            files |= {file_of(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            files |= {file_of(f"{node.module}.{alias.name}") or file_of(node.module) for alias in node.names}
    return {file for file in files if file is not None and file != path}


def test_python_files_have_no_circles(repository: Path) -> None:
    """A file of mpnet/ can be read before those that import it."""
    files = {path: imported_files(path, repository) for path in sorted((repository / "mpnet").rglob("*.py"))}
    assert list(TopologicalSorter(files).static_order())  # raises CycleError, which names the circle


def test_calls_of_the_c_core_go_through_one_door(repository: Path) -> None:
    """Files outside of mpnet/kernels do not import the extension: its functions are called where arguments are checked."""
    package = repository / "mpnet"
    doors = [
        path for path in package.rglob("*.py") if re.search(r"import _core|_core import", path.read_text(encoding="utf-8"))
    ]
    assert len(doors) > 5
    assert [str(path) for path in doors if path.parent != package / "kernels"] == []


def test_c_files_flow_one_way(repository: Path) -> None:
    """Rooms include what they may, and no units form a circle.

    A unit is a header with the file of its name; it needs what it includes and calls.
    """
    root = (repository / "csrc").resolve()
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.[ch]"))}
    unit_of = {path: path.relative_to(root).with_suffix("") for path in texts}
    sources = {path: C_COMMENT.sub("", text) for path, text in texts.items() if path.suffix == ".c"}
    home = {name: unit_of[path] for path, text in sources.items() for name in C_FUNCTION.findall(text)}
    needs: dict[Path, set[Path]] = {}
    offences = []
    for path, text in texts.items():
        unit = unit_of[path]
        required_units = {home[word] for word in C_WORD.findall(sources.get(path, "")) if word in home}
        for name in INCLUDE.findall(text):
            target = next(p for p in (path.parent / name, root / name) if p.exists()).resolve().relative_to(root)
            room, target_room = (str(p.parent).replace(".", "") for p in (unit, target))
            if room != target_room and target_room not in ROOMS[room]:
                offences.append(f"{path}: includes {target}")
            required_units.add(target.with_suffix(""))
        needs.setdefault(unit, set()).update(required_units - {unit})
    assert offences == []
    assert len(home) > 100  # the pattern still knows a function when it sees one
    assert list(TopologicalSorter(needs).static_order())  # raises CycleError, which names the circle


def test_files_stay_small(repository: Path) -> None:
    long_files = [
        f"{path}: {count} lines"
        for folder in ("mpnet", "tests", "csrc", "tools", "benchmarks")
        for path in sorted((repository / folder).rglob("*.[pch]*"))
        if path.suffix in {".py", ".c", ".h"}
        and path.name != "_core.c"
        and (count := len(path.read_text(encoding="utf-8").splitlines())) > 600
    ]
    assert long_files == []


def test_source_files_name_their_licence(repository: Path) -> None:
    """In the first or second line. The report's scripts and styles are left out: they become part of every page."""
    listed = subprocess.run(["git", "ls-files"], cwd=repository, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("SKIPPED: no git, or no clone")
    sources = [
        path
        for path in map(repository.joinpath, listed.stdout.splitlines())
        if (path.suffix in {".py", ".c", ".h", ".def", ".S", ".ld", ".sh"} or path.name == "Makefile") and path.is_file()
    ]
    unnamed = []
    for path in sources:
        lines = path.read_text(encoding="utf-8").splitlines()
        if lines and not any("SPDX-License-Identifier: MIT" in line for line in lines[:2]):
            unnamed.append(str(path))
    assert len(sources) > 500
    assert unnamed == []
