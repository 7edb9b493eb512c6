# SPDX-License-Identifier: MIT
"""The page of one network in Markdown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpnet.evaluation.compare import Interval
from mpnet.report.data.network_page import NetworkPage, NetworkPart, PageRow
from mpnet.report.text.network_page import render_markdown
from tests.report.synthetic import report_data

COSTS = {"bit_operations": 100.0, "weight_bytes": 4000.0}


def _page(title: str = "net", node: str = "/model.1/conv/Conv") -> NetworkPage:
    data = report_data()
    table = data.configurations
    keys = table.keys[table.baseline or 0], table.keys[table.chosen or 0]
    interval = {"agreement_AP": Interval(-2.0, -3.0, -1.0)}
    rows = (
        PageRow((), keys[0], {"agreement_AP": 100.0, **COSTS}, {}, None),
        PageRow(("recommended",), keys[1], {"agreement_AP": 98.0, "bit_operations": 25.0, "weight_bytes": 1e3}, interval, None),
    )
    parts = (
        NetworkPart("model.0", ("conv-1",), ((8, 8, 4),), 0.25, 0.5, False, ("int8",), 10.0),
        NetworkPart("model.1", ("conv-2", "conv-3"), ((8, 8, 4), (4, 4, 2)), 0.75, 0.5, True, ("fp16", "int8"), None),
    )
    data = replace(data, title=title)
    return NetworkPage(data, "net.cfg", (8, 8, 3), 1, 20, 0, rows, parts, {"fp16": (node,)})


def test_figures_parts_and_marks_are_on_the_page() -> None:
    text = render_markdown(_page())
    assert "98.00 (97.00 to 99.00) | 25.0 % |" in text
    assert "| `model.1` | 2 layers, 8x8x4 to 4x4x2, feeds a head | 75.0 % | 50.0 % |  | **fp16**, int8 |" in text
    assert "By parts: int8 in `model.0`; fp16 and int8 in all other parts." in text
    assert "**fp16**, 1 layer: `/model.1/conv/Conv`." in text
    assert "none of them has labels" in text
    assert "the first has the noise of all." in text


@pytest.mark.parametrize(("ranges", "is_said"), [("dynamic", True), ("calibrated", False)])
def test_what_compilers_do_otherwise_is_said_where_they_do(ranges: str, is_said: bool) -> None:
    page = _page()
    protocol = {"quantization": {"activations": {"mode": "affine", "ranges": ranges}}}
    text = render_markdown(replace(page, data=replace(page.data, protocol=protocol)))
    assert ("Most compilers fix them beforehand" in text) == is_said


def test_a_sweep_that_compared_with_other_precisions_says_so() -> None:
    page = _page()
    table = page.data.configurations
    assert "The sweep itself compared" not in render_markdown(page)
    compared = replace(table, baseline=table.keys.index("q" * 11))
    text = render_markdown(replace(page, data=replace(page.data, configurations=compared)))
    assert "The sweep itself compared with int8 everywhere." in text


def test_names_of_files_stay_text() -> None:
    text = render_markdown(_page("<b>|`\u202e", "a`<script>|"))
    assert "# &lt;b>\\|'" in text
    assert "`a'&lt;script>\\|`" in text
    assert "<script>" not in text
    assert "\u202e" not in text
