# SPDX-License-Identifier: MIT
"""Every name that a document puts between backticks is one that the code has."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Iterator

import pytest

from mpnet.config.measures import MEASURES
from tests.test_docs import FENCE

PROGRAMS = (".py", ".c", ".h", ".def", ".js", ".s", ".sh", ".cfg", ".yaml", ".yml", ".toml", ".html", "Makefile")
"""Ends of the names of files whose words count as names of the code."""
FOLDERS = ("mpnet", "csrc", "tests", "tools", "benchmarks", "mixbench", "experiments", "docs", "cfg")
OF_OTHERS = re.compile(r"block_size|opt\.|core\.read_model|use_(fp16|bf16)_|torch\.|(XDG|WANDB|MLFLOW|CMAKE)_|onnxruntime\.")
"""Names of other programs."""


def spans(text: str) -> Iterator[tuple[str, str]]:
    """Yield (name, its paragraph, item, or row with the heads) of everything between backticks outside of blocks."""
    for block in re.split(r"\n\s*\n", FENCE.sub("", text)):
        lines = block.splitlines()
        rows = (
            [f"{lines[0]}\n{row}" for row in lines]
            if lines and lines[0].startswith("|")
            else re.split(r"\n(?=- |\d+\. )", block)
        )
        for row in rows:
            for name in re.findall(r"`([^`\n]+)`", row):
                yield name, row


def alternatives(name: str) -> list[str]:
    """Return `a{b,c}` as `ab` and `ac`; NAME, <name> and the x of test_x stand for any name."""
    braces = re.search(r"\{([^{}]*)\}", name)
    if braces:
        return [
            alternative for choice in braces[1].split(",") for alternative in alternatives(name.replace(braces[0], choice, 1))
        ]
    return [re.sub(r"NAME|<\w+>|(?<=test_)x", "*", name).removeprefix("../")]


@pytest.fixture(scope="module")
def files(repository: Path) -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=repository, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if (repository / name).is_file()]


@pytest.fixture(scope="module")
def words(repository: Path, files: list[str]) -> set[str]:
    sources = [repository / name for name in files if name.endswith(PROGRAMS) and not name.startswith("docs/")]
    composed = {row.name for row in MEASURES}
    return composed | {word for path in sources for word in re.findall(r"\w+|--[a-z][a-z-]+", path.read_text(encoding="utf-8"))}


@pytest.fixture(scope="module")
def members(repository: Path, files: list[str]) -> dict[str, set[str]]:
    """Return for each class the names in its body, in its methods' assignments to self, and of the classes that it extends."""
    names_of_class: dict[str, set[str]] = defaultdict(set)
    for name in (name for name in files if name.endswith(".py")):
        for node in ast.walk(ast.parse((repository / name).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                names_of_class[node.name] |= set(re.findall(r"\w+", ast.unparse(node)))
    return names_of_class


def is_file(name: str, paragraph: str, files: list[str]) -> bool:
    """Return whether a path is there: below a folder that its paragraph or row names, where it names one."""
    folders = [f for f in re.findall(r"`([\w./{},-]+/)`", paragraph) if f.partition("/")[0] in FOLDERS]
    folder_names = [alternative for folder in folders for alternative in alternatives(folder)] if "/" not in name else []
    return all(
        any(
            fnmatch(f"/{path}", f"*/{pattern}") or fnmatch(f"/{path}", f"*/{pattern.rstrip('/')}/*")
            for path in files
            if not folder_names or any(folder in f"/{path}" for folder in folder_names)
        )
        for pattern in alternatives(name)
    )


def test_names_of_documents_are_names_of_the_code(
    repository: Path, files: list[str], words: set[str], members: dict[str, set[str]]
) -> None:
    unresolved = []
    pages = [repository / "README.md", repository / "CONTRIBUTING.md", *sorted((repository / "docs").glob("*.md"))]
    for page in pages:
        for name, paragraph in spans(page.read_text(encoding="utf-8")):
            bare = name.removesuffix("()")
            of_class = re.fullmatch(r"([A-Z]\w*[a-z]\w*)\.(\w+)", bare)
            if OF_OTHERS.search(name):
                is_resolved = True
            elif re.fullmatch(r"[\w./{}<>,*-]+\.(py|c|h|def|csv|js|sh)", name) or re.match(
                rf"({'|'.join(FOLDERS)})/\S*$", name
            ):
                is_resolved = is_file(name, paragraph, files)
            elif of_class and of_class[1] in members:
                is_resolved = of_class[2] in members[of_class[1]]
            elif flags := set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", name)) if not re.match("pip|python", name) else set():
                is_resolved = flags <= words
            elif re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", bare) and re.search(r"[_.]|[a-z][A-Z]", bare):
                is_resolved = set(bare.split(".")) <= words
            else:
                is_resolved = True
            if not is_resolved:
                unresolved.append(f"{page.relative_to(repository)}: {name}")
    assert not unresolved, "\n".join(unresolved)
