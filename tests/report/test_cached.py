# SPDX-License-Identifier: MIT
"""What a report computed is load_or_compute, and comes back as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpnet.report.collect.cached import load_or_compute
from mpnet.report.html import page
from tests.report.synthetic import report_data


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MPNET_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_is_kept_comes_back_as_it_was(cache: Path) -> None:
    data = report_data()
    assert page.render(load_or_compute(["a"], lambda: data)) == page.render(data)
    cached = load_or_compute(["a"], lambda: replace(data, title="computed again"))
    assert page.render(cached) == page.render(data)
    assert cached.configurations.columns["AP"].dtype == np.float64
    assert load_or_compute(["b"], lambda: replace(data, title="another")).title == "another"
    assert load_or_compute(["c"], lambda: 1, lambda _: False) == 1
    assert load_or_compute(["c"], lambda: 2) == 2


def test_a_damaged_entry_is_computed_again(cache: Path) -> None:
    assert load_or_compute(["a"], lambda: (1.5, b"x")) == (1.5, b"x")
    (entry,) = (cache / "prepared").iterdir()
    entry.write_bytes(entry.read_bytes()[:-64])
    assert load_or_compute(["a"], lambda: (2.5, b"y")) == (2.5, b"y")
