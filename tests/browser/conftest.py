# SPDX-License-Identifier: MIT
"""A real browser for the page: Debian's chromium (or MPNET_CHROMIUM) driven by Playwright; without: skipped, aloud."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

# As on virtual machines, remote desktops and locked-down browsers. Root may not use the sandbox.
WITHOUT_WEBGL = ["--no-sandbox", "--disable-gpu", "--disable-3d-apis"]
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Yield a running headless browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        pytest.skip("SKIPPED WITHOUT PLAYWRIGHT: pip install playwright, to test the report in a browser")
    program = os.environ.get("MPNET_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("SKIPPED WITHOUT CHROMIUM: apt-get install chromium (or set MPNET_CHROMIUM) to test the report")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=WITHOUT_WEBGL)
        yield running
        running.close()


@dataclass
class WatchedPage:
    """A page with everything that went wrong in it. requests: addresses it asked for, the file itself left out."""

    page: Any
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    """Yield a function that opens a page: its path and context options -> WatchedPage."""
    contexts = []

    def open_file(path: Path, **options: Any) -> WatchedPage:
        context = browser.new_context(accept_downloads=True, **options)
        contexts.append(context)
        # A machine under load may take its time; nothing here is about speed.
        context.set_default_timeout(180_000)
        session = WatchedPage(context.new_page())
        session.page.on("console", lambda m: session.problems.append(m.text) if m.type in ("error", "warning") else None)
        session.page.on("pageerror", lambda e: session.problems.append(str(e)))
        session.page.on("dialog", lambda d: (session.problems.append(f"dialog {d.message}"), d.dismiss()))
        session.page.on(
            "request",
            lambda r: None
            if r.url == path.as_uri() or r.url.startswith(("data:", "blob:"))
            else session.requests.append(r.url),
        )
        session.page.goto(path.as_uri())
        session.page.wait_for_selector("html[data-ready]")
        return session

    yield open_file
    for context in contexts:
        context.close()
