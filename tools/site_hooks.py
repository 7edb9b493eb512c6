# SPDX-License-Identifier: MIT
"""What mkdocs is told beside mkdocs.yml.

A folder in the navigation stands for its pages, and pages of the repository outside docs/, which the site does not
have, are named instead of linked. Beside the pages stands llms.txt, a list of them for programs that read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

OUTSIDE_LINK = re.compile(
    r"\[([^]]*)\]\((?:\.\./)+((?:README|CONTRIBUTING|CHANGELOG|SECURITY)\.md|(?:tools|experiments|cfg|benchmarks)/[^)]*)\)"
)

SHORTEST = 30
"""Characters of a page's description, below which the next sentence joins it."""


def on_config(config: Any) -> None:
    """Folders in the navigation become their pages, in the order of their names."""
    docs = Path(config.docs_dir)

    def expand(entry: Any) -> Any:
        if isinstance(entry, dict):
            return {title: expand(pages) for title, pages in entry.items()}
        if isinstance(entry, list):
            return [expand(pages) for pages in entry]
        folder = docs / entry
        return [page.relative_to(docs).as_posix() for page in sorted(folder.glob("*.md"))] if folder.is_dir() else entry

    config.nav = expand(config.nav)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to what the site does not have become its name."""
    return OUTSIDE_LINK.sub(lambda link: f"{link[1]} (`{link[2]}`)" if link[1] != link[2] else f"`{link[2]}`", markdown)


def on_post_build(config: Any) -> None:
    """Write llms.txt beside the pages."""
    text = list_pages(config.site_name, config.site_description, config.nav, Path(config.docs_dir))
    (Path(config.site_dir) / "llms.txt").write_text(text, encoding="utf-8")


def list_pages(name: str, description: str, nav: list[Any], docs: Path) -> str:
    """Return the text of llms.txt: sections of the navigation, and of each page its link, title and first sentence.

    nav: as mkdocs.yml has it, with folders expanded.
    """
    lines = [f"# {name}", "", f"> {description}"]
    for section in nav:
        [(title, entries)] = section.items()
        lines += ["", f"## {title}", ""]
        for page in _pages_of(entries):
            if page.endswith(".md"):
                heading, sentence = _describe_page((docs / page).read_text(encoding="utf-8"))
                lines.append(f"- [{heading}]({_address(page)}): {sentence}")
    return "\n".join(lines) + "\n"


def _pages_of(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    entries = entry.values() if isinstance(entry, dict) else entry
    return [page for part in entries for page in _pages_of(part)]


def _address(page: str) -> str:
    """Return where mkdocs puts a page: README.md is its folder's index."""
    return re.sub(r"(^|/)README\.md$", r"\1index.html", page).removesuffix(".md") + (
        "" if page.endswith("README.md") else ".html"
    )


def _describe_page(text: str) -> tuple[str, str]:
    """Return a page's title and the first sentences of its first paragraph, as many as say something, without links."""
    heading = next((line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")), "")
    bare = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    paragraphs = (block.strip() for block in re.split(r"\n\s*\n", bare))
    prose = next((block for block in paragraphs if re.match(r"[\w`*\[]", block)), "")
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(prose.split())).replace("*", "")
    description = ""
    for sentence in re.split(r"(?<=[.:]) ", plain.removeprefix("Context. ")):
        description = f"{description} {sentence}".strip()
        if len(description) >= SHORTEST:
            break
    return heading, description.rstrip(":")
