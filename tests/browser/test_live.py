# SPDX-License-Identifier: MIT
"""A running sweep's page in a browser: it changes as trials come, and ends with the sweep."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from mpnet.report import live
from tests.report.made_store import make_store
from tests.report.test_live import add, end


def test_the_page_follows_the_sweep(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "POLL_SECONDS", 0.05)
    store = make_store(tmp_path / "s.sqlite", count=40, state="running")
    report = live.LiveReport(store)
    thread = threading.Thread(target=report.serve)
    thread.start()
    context = browser.new_context()
    context.set_default_timeout(60_000)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(report.address)
    page.locator("#status", has_text="running: 40 of").wait_for()
    page.frame_locator("#report").locator("html[data-ready] h1").wait_for()
    add(store)
    page.locator("#status", has_text="running: 41 of").wait_for()
    end(store)
    page.locator("#status", has_text="finished: ").wait_for()
    page.frame_locator("#report").locator(".badge-finished").wait_for()
    thread.join(30)
    assert not thread.is_alive()
    context.close()
    assert problems == []
