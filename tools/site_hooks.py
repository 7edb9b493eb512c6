# SPDX-License-Identifier: MIT
"""What mkdocs is told beside mkdocs.yml.

A folder in the navigation stands for its pages, and pages of the repository outside docs/, which the site does not
have, are named instead of linked.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

OUTSIDE_LINK = re.compile(
    r"\[([^]]*)\]\((?:\.\./)+((?:README|CONTRIBUTING|CHANGELOG|SECURITY)\.md|(?:tools|experiments|cfg|benchmarks)/[^)]*)\)"
)


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
