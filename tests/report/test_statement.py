# SPDX-License-Identifier: MIT
"""The page for whoever signs: what it says, and what it refuses."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from mpnet.errors import ConfigError
from mpnet.report import statement as module
from mpnet.report.data.summary import in_words
from mpnet.report.html.page import render
from mpnet.report.statement import statement, write_statement
from mpnet.trial.detection import METRIC
from tests.report.synthetic import report_data
from tests.report.test_page import HOSTILE


def test_it_says_what_was_chosen_lost_saved_and_not_tested() -> None:
    data = report_data()
    page = statement(data)
    for heading in ("The choice", "What was measured", "What it may lose", "What it saves", "What was not tested", "Digests"):
        assert f"<h2>{heading}" in page
    assert f"On {data.images} images" in page
    assert all(digest in page for name, digest in data.digests.items() if name in module.DIGESTS)
    assert "% saved" in page
    table = data.configurations
    assert f"<p>{in_words(data, table.keys[table.chosen or 0])} (<code>" in page
    assert f"The baseline is {in_words(data, table.keys[table.baseline or 0])}." in page
    assert page.count("<th>baseline</th>") == 2
    report = replace(data, protocol={**data.protocol, "metric": METRIC})
    for text in (statement(report), render(report)):
        assert METRIC.replace("per picture", "per image") in text
        assert "per picture" not in text


@pytest.mark.parametrize("name", [name for name in HOSTILE if "<" in name])
def test_names_are_text(name: str) -> None:
    page = statement(replace(report_data(), title=name, source=name))
    assert name not in page


def test_without_a_baseline_there_is_nothing_to_sign() -> None:
    data = report_data()
    alone = replace(data, configurations=replace(data.configurations, baseline=None))
    with pytest.raises(ConfigError, match="--statement: needs a configuration and its baseline"):
        statement(alone)


def test_a_pdf_needs_chromium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BROWSERS", ("no-such-browser",))
    monkeypatch.delenv("MPNET_CHROMIUM", raising=False)
    with pytest.raises(ConfigError, match=r"name a \.html file"):
        write_statement(report_data(), tmp_path / "s.pdf")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_it_fits_on_one_page(tmp_path: Path) -> None:
    if not any(map(shutil.which, module.BROWSERS)):
        pytest.skip("SKIPPED WITHOUT CHROMIUM: apt-get install chromium, to test the statement as PDF")
    write_statement(report_data(), tmp_path / "s.pdf")
    content = (tmp_path / "s.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert content.count(b"/Type /Page\n") + content.count(b"/Type /Page ") == 1
