# SPDX-License-Identifier: MIT
"""From a sweep to its page, from a click to a .cfg, and from that to the same figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.browser.conftest import WatchedPage
from tests.cli.conftest import Mpnet, document_of
from tests.cli.conftest import mpnet as mpnet
from tests.cli.test_report import store as store


def test_a_saved_cfg_runs_to_the_same_ap(mpnet: Mpnet, store: Path, tmp_path: Path, open_page: Any) -> None:
    document_of(mpnet("report", store, "-o", "page.html", "--draws", 100, "--json"))
    watched: WatchedPage = open_page(tmp_path / "page.html")
    page = watched.page
    page.click("nav a[href='#configurations']")
    page.select_option("#rows-filter", "all")
    page.fill("#rows-find", "qfq" + "f" * 10)
    page.locator("#table-configurations tbody button").first.click()
    key = page.text_content("#panel-key")
    with page.expect_download() as saving:
        page.click("#save-cfg")
    saving.value.save_as(tmp_path / "saved.cfg")
    exported = mpnet("export", f"{store}:{key}", "--to", "cfg", "-o", "exported.cfg")
    assert exported.returncode == 0, exported.stderr
    assert (tmp_path / "saved.cfg").read_bytes() == (tmp_path / "exported.cfg").read_bytes()
    run = document_of(mpnet("run", tmp_path / "experiment.yaml", "--set", "model.cfg=saved.cfg", "--json"))
    assert run["precision"]["key"] == key
    row = page.evaluate("TABLE.keys.indexOf(byId('panel-key').textContent)")
    stored_metrics = page.evaluate("row => [TABLE.columns.AP[row], TABLE.columns.agreement_AP[row]]", row)
    assert [run["metrics"]["AP"], run["agreement"]["AP"]] == stored_metrics
    assert watched.problems == []
    assert watched.requests == []
