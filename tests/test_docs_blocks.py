# SPDX-License-Identifier: MIT
"""Every code block of the documents is replayed, understood by what it is for, or has a reason here why neither is done.

tests/cli/test_docs_replayed.py runs the commands of guides."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Iterator, NamedTuple

import click
import pytest
import yaml

from mpnet.cli.main import COMMANDS, cli
from mpnet.formats.documents.experiment import parse_experiment
from mpnet.formats.documents.target_file import parse_target

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?<=\n\n)((?:    \S.*\n(?: *\n(?=    ))?)+)")
REPLAYED = {
    ("README.md", "console"): "tests/test_readme.py",
    ("README.md", ""): "tests/test_readme.py",
    ("docs/first-network.md", "console"): "tests/test_readme.py",
    ("docs/api.md", "python"): "tests/test_docs.py",
    ("docs/mprun.md", "c"): "tests/mprun/test_same_bits.py",
    ("docs/board.md", "console"): "tests/mprun/test_board.py",
    ("docs/ci.md", "yml"): "tests/cli/test_action.py",
}
"""(page, language) -> the test that runs these blocks."""
OTHER_PROGRAMS = {
    "make": "builds the project, as CI does",
    "pip": "installs",
    "python": "a script of experiments/ or benchmarks/, or what a recipe wrote: hours, other programs or downloads",
    "mixbench": "tests/mixbench/test_package.py calls the installed command",
    "scp": "needs a board",
    "./mprun": "needs a board",
    "module": "needs Arm's compiler",
    "dask": "needs a cluster; tests/sweep/test_dask_executor.py has one",
    "cc": "tests/mprun/test_same_bits.py compiles the example",
    "tests/arm/root.sh": "downloads an emulated system",
}
"""Programs beside mpnet that blocks call -> why no test does."""
BASE = {
    "name": "n",
    "model": {"cfg": "net.cfg", "weights": "net.weights"},
    "data": {"format": "yolo", "images": "images/", "labels": "labels/"},
}


class Block(NamedTuple):
    page: str
    language: str
    text: str


def blocks(repository: Path) -> Iterator[Block]:
    for path in (repository / "README.md", *sorted((repository / "docs").rglob("*.md"))):
        page, text = str(path.relative_to(repository)), path.read_text(encoding="utf-8")
        yield from (Block(page, *text_block) for text_block in FENCE.findall(text))
        for text_block in INDENTED.findall(FENCE.sub("", text)):
            if text_block.split()[0] in ("mpnet", *OTHER_PROGRAMS):
                yield Block(page, "sh", text_block)


def lines(block: Block) -> Iterator[list[str]]:
    """Yield the commands of a block as words, without prompts and remarks."""
    for line in block.text.replace("\\\n", " ").splitlines():
        # What stands before a program is its environment.
        words = shlex.split(re.sub(r"^\s*(board)?\$ ", "", line), comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            del words[0]
        if words:
            yield words


def understood(words: list[str]) -> str:
    """Return why the command line does not take these words, '' when it does; nothing runs."""
    command = cli.get_command(click.Context(cli), words[0])
    if command is None:
        return f"no command {words[0]}"
    try:
        with command.make_context(words[0], words[1:]):
            return ""
    except click.UsageError as error:
        return error.format_message()


def test_every_block_has_its_check(repository: Path) -> None:
    kinds = {(block.page, block.language) for block in blocks(repository)}
    checked_kinds = {(page, language) for page, language in kinds if language in ("sh", "console", "yaml", "python")}
    assert kinds - checked_kinds - REPLAYED.keys() == set()
    assert [test for test in REPLAYED.values() if not (repository / test).is_file()] == []
    assert REPLAYED.keys() <= kinds


def test_every_command_is_taken_by_the_command_line(repository: Path) -> None:
    offences, command_count = [], 0
    for block in blocks(repository):
        if block.language not in ("sh", "console"):
            continue
        for words in lines(block):
            if words[0] == "mpnet":
                command_count += 1
                if reason := understood(words[1:]):
                    offences.append(f"{block.page}: {shlex.join(words)}: {reason}")
            elif words[0] not in OTHER_PROGRAMS and block.language == "sh":  # of a console, the rest is what was printed
                offences.append(f"{block.page}: {words[0]} has no reason in OTHER_PROGRAMS")
    assert offences == []
    assert command_count > 50


def test_every_command_named_in_a_sentence_is_taken_by_the_command_line(repository: Path) -> None:
    offences, command_count = [], 0
    for path in (repository / "README.md", repository / "CONTRIBUTING.md", *sorted((repository / "docs").rglob("*.md"))):
        text = FENCE.sub("", path.read_text(encoding="utf-8"))
        for span in re.findall(r"`mpnet ([^`[]*)`", text):
            command_count += 1
            reason = understood(shlex.split(span.replace("...", "")))
            if reason and not reason.startswith("Missing"):  # a sentence may leave out what a command works on
                offences.append(f"{path.name}: mpnet {span}: {reason}")
    assert offences == []
    assert command_count > 50


def test_every_key_is_taken_by_an_experiment_or_a_target_file(repository: Path) -> None:
    yaml_blocks = [block for block in blocks(repository) if block.language == "yaml"]
    assert len(yaml_blocks) >= 3
    for block in yaml_blocks:
        if block.text.startswith("what:"):
            parse_target(block.text, block.page, block.page)
        else:
            parse_experiment(yaml.safe_dump(BASE | yaml.safe_load(block.text)), source=block.page)


def test_every_script_compiles_and_finds_its_imports(repository: Path) -> None:
    for block in blocks(repository):
        if block.language == "python" and (block.page, "python") not in REPLAYED:
            compile(block.text, block.page, "exec")
            for line in block.text.splitlines():
                if line.startswith(("import ", "from ")):
                    exec(line, {})


@pytest.mark.parametrize("words", [["sweep", "a.yaml", "--no-such-option"], ["swep"], ["detect", "a.yaml", "--conf", "two"]])
def test_what_is_not_understood_is_said(words: list[str]) -> None:
    assert understood(words)
    assert words[0] in COMMANDS or "swep" in words
