# SPDX-License-Identifier: MIT
"""The documentation: its examples run and give what they say, and a reader finds every page."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import yaml

import mpnet
import mpnet.cli.main
from mpnet.cli.main import COMMANDS

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]*)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCE = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)


def pages(repository: Path) -> list[Path]:
    return sorted(
        p for p in repository.rglob("*.md") if not {".venv", "build", ".cache"} & set(p.relative_to(repository).parts)
    )


def anchors(page: Path) -> set[str]:
    """Return what a link may name in a page, as hosting sites make it of headings."""
    plain = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in HEADING.findall(plain)]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[tuple[Path, str]]:
    """Return (file, anchor) of every relative link of a page; the page itself for `#anchor`."""
    targets = LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    split = (target.partition("#") for target in targets)
    return [((page.parent / file).resolve() if file else page, anchor) for file, _, anchor in split]


def test_api_page(repository: Path) -> None:
    failure_count, attempt_count = doctest.testfile(str(repository / "docs" / "api.md"), module_relative=False)
    assert attempt_count > 20
    assert failure_count == 0


def test_links_lead_somewhere(repository: Path) -> None:
    dead_links = [
        f"{page.relative_to(repository)}: {file.name}#{anchor}"
        for page in pages(repository)
        for file, anchor in links(page)
        if not file.exists() or (anchor and anchor not in anchors(file))
    ]
    assert dead_links == []


def test_every_page_is_found_from_the_readme(repository: Path) -> None:
    reached: set[Path] = set()
    waiting = [repository / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            waiting += [file for file, _ in links(page) if file.is_file()]
    index = {file for file, _ in links(repository / "docs" / "README.md")}
    docs = [page for page in pages(repository) if "docs" in page.relative_to(repository).parts and page.name != "README.md"]
    assert [str(page.relative_to(repository)) for page in docs if page not in reached] == []
    assert [str(page.relative_to(repository)) for page in docs if page not in index] == []


def test_the_readme_fits_on_a_page(repository: Path) -> None:
    assert len((repository / "README.md").read_text(encoding="utf-8").splitlines()) <= 90


def test_the_page_of_commands_has_them_all(repository: Path) -> None:
    text = (repository / "docs/commands.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == sorted(COMMANDS)
    exit_codes = re.findall(r"(\d+) [a-z]", str(mpnet.cli.main.__doc__).partition("Exit codes: ")[2])
    assert re.findall(r"^\| (\d+) \|", text, re.MULTILINE) == exit_codes


def test_the_conda_recipe_asks_for_what_the_package_does(repository: Path) -> None:
    recipe = yaml.safe_load((repository / "tools/conda/recipe.yaml").read_text(encoding="utf-8"))
    project = (repository / "pyproject.toml").read_text(encoding="utf-8")
    block = re.search(r"^dependencies = \[(.*?)^\]", project, re.DOTALL | re.MULTILINE)
    python = re.search(r'^requires-python = "(.*)"', project, re.MULTILINE)
    assert block is not None
    assert python is not None
    names = {"opencv-python-headless": "py-opencv"}
    dependencies = [re.split(r"(?=>=)", line.lower()) for line in re.findall(r'"(.*?)"', block[1])]
    expected = [f"python {python[1]}", *(f"{names.get(name, name)} {version}" for name, version in dependencies)]
    assert recipe["requirements"]["run"] == expected
    assert recipe["context"]["version"] == mpnet.__version__
    assert recipe["build"]["python"]["entry_points"] == ["mpnet = mpnet.__main__:main"]
