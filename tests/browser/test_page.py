# SPDX-License-Identifier: MIT
"""The page as readers use it: pointing, clicking, sorting, typing, saving; with eyes, keyboard and phone."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpnet.report.data.summary import in_words
from mpnet.report.html.page import render
from tests.report.synthetic import configurations, report_data
from tests.report.test_page import HOSTILE

TABLE = configurations()
CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report of 'all' %20.html"
    path.write_text(render(report_data(tuple(f"class {i}" for i in range(20)))), encoding="utf-8")
    return path


def unfold(page: Any) -> None:
    """Open every folded part; nothing else of the page is drawn later than at its start."""
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")


def point(page: Any, row: int) -> tuple[float, float]:
    """Return where configuration `row` is on the screen."""
    box = page.evaluate(
        """row => {
        const node = document.getElementById('plot-front');
        node.scrollIntoView({ block: 'center', behavior: 'instant' });
        const box = node.getBoundingClientRect(), [x, y] = FRONT.place(row);
        return [box.x + x, box.y + y];
    }""",
        row,
    )
    return box[0], box[1]


def drawn_rows(page: Any) -> list[int]:
    """Return the rows of the front's points, from left to right."""
    return page.eval_on_selector_all("#front-points .point", "nodes => nodes.map(n => Number(n.dataset.row))")


def test_nothing_is_asked_of_any_network_and_nothing_goes_wrong(report: Path, open_page: Any) -> None:
    watched = open_page(report)
    unfold(watched.page)
    assert watched.requests == []
    assert watched.problems == []


def lonely_front_row() -> int:
    """Return the configuration on the front that is farthest from all others, so that a pointer hits nothing else."""
    points = np.stack([TABLE.columns[name] / np.ptp(TABLE.columns[name]) for name in (TABLE.cost, TABLE.objective)], 1)
    rows = [int(row) for row in np.flatnonzero(TABLE.front) if row not in (TABLE.baseline, TABLE.chosen)]
    return max(rows, key=lambda row: np.delete(np.abs(points - points[row]).max(axis=1), row).min())


def test_hovering_shows_the_precision_string(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    row = lonely_front_row()
    page.mouse.move(*point(page, row))
    page.wait_for_selector("#plot-front .tip:visible")
    text = page.text_content("#plot-front .tip")
    assert text.startswith(in_words(report_data(), TABLE.keys[row]) + TABLE.keys[row])


def test_clicking_a_point_selects_its_configuration(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    row = lonely_front_row()
    assert page.text_content("#panel-key") == TABLE.keys[int(TABLE.chosen or 0)]
    x, y = point(page, row)
    page.mouse.move(x, y)
    page.mouse.click(x, y)
    page.wait_for_selector(f"#panel-key:text-is('{TABLE.keys[row]}')")
    assert page.text_content("#panel-title") == "On the front"
    assert page.text_content("#panel-words") == in_words(report_data(), TABLE.keys[row])
    page.click("#back")
    assert page.text_content("#panel-key") == TABLE.keys[int(TABLE.chosen or 0)]


def test_the_front_is_svg_and_the_cloud_is_drawn_without_webgl(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    assert page.evaluate("document.createElement('canvas').getContext('webgl')") is None
    front = sorted(np.flatnonzero(TABLE.front).tolist(), key=lambda row: TABLE.columns[TABLE.cost][row])
    assert drawn_rows(page) == front
    assert page.locator("#front-points .whisker").count() == len(front)
    assert page.locator("#front-points .mark").count() == 4
    painted = page.evaluate("""() => { const c = document.querySelector('#plot-front canvas');
        return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.filter((v, i) => i % 4 === 3 && v).length; }""")
    assert painted > len(TABLE)
    assert page.evaluate("FRONT.cloud.length") == len(TABLE) - len(front)


def test_a_dominated_point_can_be_clicked_and_a_rectangle_enlarged(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    lonely = page.evaluate("""FRONT.cloud.find(row => { const [x, y] = FRONT.place(row);
        const far = other => { const [u, v] = FRONT.place(other); return Math.hypot(u - x, v - y) > 2; };
        return rowAt(x, y) === row && FRONT.cloud.every(other => other === row || far(other)); })""")
    page.mouse.click(*point(page, lonely))
    assert page.text_content("#panel-key") == TABLE.keys[lonely]
    x, y = point(page, int(TABLE.chosen or 0))
    page.mouse.move(x - 40, y - 40)
    page.mouse.down()
    page.mouse.move(x + 40, y + 40)
    page.mouse.up()
    assert 0 < len(page.evaluate("FRONT.marks")) < TABLE.front.sum()
    page.click("#front-whole")
    assert set(page.evaluate("FRONT.marks")) == set(np.flatnonzero(TABLE.front).tolist()) | {0}
    page.select_option("#front-range", "front")
    assert page.evaluate("FRONT.cloud") == []


def test_arrow_keys_walk_along_the_front(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    cost = TABLE.columns[TABLE.cost]
    front = sorted((row for row in range(len(TABLE)) if TABLE.front[row]), key=lambda row: cost[row])
    position = front.index(int(TABLE.chosen or 0))
    page.focus("#front-keys")
    page.keyboard.press("ArrowRight")
    assert page.text_content("#panel-key") == TABLE.keys[front[position + 1]]
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.text_content("#panel-key") == TABLE.keys[front[position - 1]]


def test_tables_sort_by_numbers_both_ways(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    header = page.locator("#table-classes th", has_text="objects").locator("button")
    cells = "#table-classes tbody tr td:nth-child(2)"

    def read_values() -> list[int]:
        """Return the numbers in the column's cells, which may say `few` behind them."""
        return [int(text.split()[0]) for text in page.locator(cells).all_text_contents()]

    values = read_values()
    header.click()
    assert read_values() == sorted(values)
    header.press("Enter")
    assert read_values() == sorted(values, reverse=True)


def test_the_table_of_configurations_sorts_filters_and_selects(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    page.click("nav a[href='#configurations']")
    page.select_option("#rows-filter", "all")
    assert "of 2,048" in page.text_content("#rows-said")
    page.fill("#rows-find", "q?????????q")
    assert "of 512" in page.text_content("#rows-said")
    page.locator("#table-configurations th button", has_text="agreement AP").click()
    best = min(
        (row for row in range(len(TABLE)) if TABLE.keys[row][0] == TABLE.keys[row][-1] == "q"),
        key=lambda row: TABLE.columns["agreement_AP"][row],
    )
    first_row = page.locator("#table-configurations tbody tr").first
    assert first_row.locator("button").text_content() == TABLE.keys[best]
    first_row.locator("button").press("Enter")
    assert page.text_content("#panel-key") == TABLE.keys[best]


def test_the_saved_cfg_is_that_of_the_selected_configuration(report: Path, open_page: Any, tmp_path: Path) -> None:
    page = open_page(report).page
    page.focus("#front-keys")
    page.keyboard.press("ArrowLeft")
    key = page.text_content("#panel-key")
    with page.expect_download() as saving:
        page.click("#save-cfg")
    template = report_data().cfg
    assert template is not None
    assert Path(saving.value.path()).read_text(encoding="utf-8") == template.fill(key)
    assert saving.value.suggested_filename == f"tiny-{key}.cfg"


def test_data_beside_every_figure(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    page.click("nav a[href='#configurations']")
    with page.expect_download() as saving:
        page.locator("[data-figure='heat'] button[data-format='json']").click()
    document = json.loads(Path(saving.value.path()).read_text(encoding="utf-8"))
    assert document["precision"][0] in TABLE.keys
    with page.expect_download() as saving:
        page.locator("#configurations [data-figure='front'] button[data-format='csv']").click()
    lines = Path(saving.value.path()).read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + len(TABLE)
    assert lines[1].startswith(TABLE.keys[0] + ",")


def test_another_cost_redraws_the_front(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    page.select_option("#front-x", "latency_ms")
    assert "latency (ms)" in page.text_content("#plot-front svg")
    assert "latency: Time for one image" in page.text_content("#front-means")
    rows = drawn_rows(page)
    x, y = TABLE.columns["latency_ms"], TABLE.columns["agreement_AP"]
    expected = [row for row in range(len(TABLE)) if not ((x <= x[row]) & (y >= y[row]) & ((x < x[row]) | (y > y[row]))).any()]
    assert sorted(rows) == expected
    assert len(rows) > 1


def test_sections_unfold_when_they_are_asked_for(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    assert not page.is_visible("#table-layers")
    page.click("nav a[href='#layers']")
    assert page.is_visible("#table-layers")
    page.evaluate("document.querySelector('#layers > details').open = false")
    page.click("nav a[href='#layers']")
    assert page.is_visible("#table-layers")


def test_a_link_of_the_navigation_leads_to_its_section(report: Path, open_page: Any) -> None:
    """Also with pictures between here and there, whose height is known before they are seen."""
    page = open_page(report, viewport={"width": 1400, "height": 300}).page
    assert page.evaluate("document.querySelectorAll('main img').length") > 3
    page.click('nav a[href="#protocol"]')
    offsets = [-1.0, 0.0]
    while offsets[-1] == 0 or offsets[-1] != offsets[-2]:
        page.wait_for_timeout(500)
        offsets.append(page.evaluate("scrollY"))
    end = page.evaluate("document.documentElement.scrollHeight - innerHeight - scrollY")
    assert end < 1 or abs(page.evaluate("document.querySelector('#protocol').getBoundingClientRect().top")) < 150
    assert page.evaluate("[...document.images].every(image => image.naturalHeight > 0)")


def test_picks_and_rows_of_the_best_show_their_configuration(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    picks = report_data().picks
    assert page.locator(".pick h3").all_text_contents() == ["safe", "balanced", "smallest"]
    page.locator(".pick button").nth(2).click()
    assert page.text_content("#panel-key") == picks[2].key
    assert page.text_content("#panel-title") == "On the front: smallest"
    page.locator("#plot-heat [data-key]").first.click()
    assert page.text_content("#panel-key") == "f" * 11


def test_lost_and_gained_are_filtered_by_class_and_true_size(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    changes = report_data(tuple(f"class {i}" for i in range(20))).changes
    page.select_option("[data-filter='size']", "small")
    small_changes = [change for change in changes if change.size == "small"]  # type: ignore[attr-defined]
    assert page.locator("#crops > li:visible").count() == len(small_changes)
    page.select_option("[data-filter='class']", small_changes[1].name)
    assert page.locator("#crops > li:visible").count() == 1
    assert page.text_content("#changes-said") == f"1 of {len(changes)}"


def test_the_confusion_matrix_counts_and_compares(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    page.click("#confusion summary")
    confusion = report_data(tuple(f"class {i}" for i in range(20))).confusion
    assert confusion is not None
    cell = page.locator("#table-confusion tbody tr").nth(3).locator("td").nth(3)
    assert cell.get_attribute("title") == (
        f"class 3 as class 3: baseline {confusion.baseline[3, 3]}, chosen {confusion.chosen[3, 3]}"
    )


def test_figures_are_saved_as_svg_with_colours(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    for name, circles in (("front", len(TABLE)), ("sensitivity-AP", 0)):
        with page.expect_download() as saving:
            page.locator(f".save-data[data-figure='{name}'] [data-format='svg']").click()
        root = ElementTree.parse(saving.value.path()).getroot()
        assert "var(" not in ElementTree.tostring(root, encoding="unicode")
        assert sum(node.tag.endswith("circle") for node in root.iter()) >= circles


def test_hostile_names_show_as_text(open_page: Any, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    data = report_data(class_names=HOSTILE, layer_names=HOSTILE, title=HOSTILE[0], image_name='a"b\nc<d>.jpg')
    path.write_text(render(data), encoding="utf-8")
    watched = open_page(path)
    unfold(watched.page)
    assert watched.page.text_content("h1") == HOSTILE[0]
    assert HOSTILE[0] in watched.page.locator("#table-classes td").all_text_contents()
    assert HOSTILE[0] in watched.page.locator("#table-layers td").all_text_contents()
    assert "<script>alert(1…" in watched.page.text_content("#plot-heat svg")
    assert watched.page.locator("#plot-heat a").count() == 0
    assert watched.problems == []
    assert watched.requests == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast(report: Path, open_page: Any, scheme: str) -> None:
    page = open_page(report, color_scheme=scheme).page
    unfold(page)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.evaluate(CONTRAST) == []


def test_colours_change_on_demand(report: Path, open_page: Any) -> None:
    page = open_page(report, color_scheme="light").page
    page.click("#theme")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    for node, role in (("#plot-front .point", "accent"), ("#plot-heat text", "text")):
        fill = page.evaluate(f"getComputedStyle(document.querySelector('{node}')).fill")
        expected = page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('--{role}').trim()")
        assert fill == f"rgb({', '.join(str(int(expected[i : i + 2], 16)) for i in (1, 3, 5))})"


@pytest.fixture(scope="session")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a network whose classes and layers have long names without spaces."""
    path = tmp_path_factory.mktemp("page") / "long.html"
    names = tuple(f"pepperidge_farm_milk_chocolate_macadamia_cookies_{i}" for i in range(5))
    path.write_text(render(report_data(names, names)), encoding="utf-8")
    return path


def overlapping(page: Any, selector: str) -> list[str]:
    """Return texts of shown elements of which one covers another."""
    return page.evaluate(
        """selector => {
        const boxes = [...document.querySelectorAll(selector)].map(n => [n.textContent.trim(), n.getBoundingClientRect()])
            .filter(([, b]) => b.width && b.height);
        const before = (a, b) => a.right <= b.left + 1 || a.bottom <= b.top + 1;
        return boxes.flatMap(([text, a], i) => boxes.slice(i + 1).filter(([, b]) => !before(a, b) && !before(b, a))
            .map(([other]) => `${text} | ${other}`));
    }""",
        selector,
    )


def test_a_phone_has_a_navigation_and_nothing_overlaps(long_names: Path, open_page: Any) -> None:
    page = open_page(long_names, viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True).page
    assert page.is_visible("nav a[href='#choice']")
    unfold(page)
    for selector in (
        "header *:not(div):not(nav)",
        ".controls > *, #plot-front, .marks, #front-means",
        ".pairs dt, .pairs dd",
        "#plot-front .mark",
        "#front-points text",
        ".pick, .tile",
        ".chart, figcaption",
    ):
        assert overlapping(page, selector) == []


@pytest.mark.parametrize("width", [320, 360, 390, 768, 1280])
def test_nothing_is_wider_than_the_screen(long_names: Path, open_page: Any, width: int) -> None:
    page = open_page(long_names, viewport={"width": width, "height": 800}).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    unfold(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_what_is_cut_says_that_it_scrolls_and_nothing_else_does(long_names: Path, open_page: Any) -> None:
    page = open_page(long_names, viewport={"width": 390, "height": 800}).page
    unfold(page)
    for width in (390, 3000):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_function(
            """() => [...document.querySelectorAll('.scroll, .chart')].filter(n => n.clientWidth).every(n => {
                const after = n.nextElementSibling, said = after && after.classList.contains('wider') ? after.textContent : '';
                const rows = `all ${n.querySelectorAll('tbody tr').length} rows`;
                return (n.scrollWidth > n.clientWidth + 4) === said.includes('sideways') &&
                    (n.scrollHeight > n.clientHeight + 4) === said.includes(rows); })"""
        )
        assert page.query_selector(".wider") or width > 390


def test_everything_that_can_be_clicked_can_be_reached_and_has_a_name(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    nameless = page.evaluate("""() => [...document.querySelectorAll('button, a[href], select, input')].filter(node =>
        !(node.getAttribute('aria-label') || node.textContent.trim() || (node.labels && node.labels.length)))
        .map(node => node.outerHTML)""")
    assert nameless == []
    assert page.evaluate("[...document.querySelectorAll('[tabindex]')].filter(n => n.tabIndex > 0).length") == 0
    assert page.evaluate("[...document.images].filter(i => !i.alt).length") == 0
