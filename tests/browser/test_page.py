"""The page as readers use it: pointing, clicking, sorting, typing, saving; with eyes, keyboard and phone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpnet.report.page import render
from tests.report.synthetic import configurations, report_data
from tests.report.test_page import HOSTILE

TABLE = configurations()
CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report of 'all' %20.html"
    path.write_text(render(report_data(tuple(f"class {i}" for i in range(20)))), encoding="utf-8")
    return path


def scroll_through(page: Any) -> None:
    """Bring every part near the screen, so that all plots are drawn."""
    height = page.evaluate("document.body.scrollHeight")
    for top in range(0, height, 500):
        page.evaluate(f"window.scrollTo(0, {top})")
        page.wait_for_timeout(40)
    for name in page.eval_on_selector_all(".plot", "nodes => nodes.map(n => n.id)"):
        page.wait_for_selector(f"#{name} .main-svg", state="attached")
    page.evaluate("window.scrollTo(0, 0)")


def point(page: Any, row: int) -> tuple[float, float]:
    """Where configuration `row` is on the screen."""
    place = page.evaluate("""row => {
        const node = document.getElementById('plot-front');
        node.scrollIntoView({ block: 'center', behavior: 'instant' });
        const box = node.getBoundingClientRect(), { xaxis, yaxis } = node._fullLayout;
        const at = (name) => TABLE.columns[document.getElementById(name).value][row];
        return [box.x + xaxis._offset + xaxis.l2p(at('front-x')), box.y + yaxis._offset + yaxis.l2p(at('front-y'))];
    }""", row)
    return place[0], place[1]


def test_nothing_is_asked_of_any_network_and_nothing_goes_wrong(report: Path, open_page: Any) -> None:
    opened = open_page(report)
    scroll_through(opened.page)
    assert opened.requests == []
    assert opened.problems == []


def lonely_front_row() -> int:
    """The configuration on the front that is farthest from all others, so that a pointer hits nothing else."""
    places = np.stack([TABLE.columns[name] / np.ptp(TABLE.columns[name]) for name in (TABLE.cost, TABLE.objective)], 1)
    rows = [int(row) for row in np.flatnonzero(TABLE.front) if row not in (TABLE.baseline, TABLE.chosen)]
    return max(rows, key=lambda row: np.delete(np.abs(places - places[row]).max(axis=1), row).min())


def test_hovering_shows_the_precision_string(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    row = lonely_front_row()
    page.mouse.move(*point(page, row))
    page.wait_for_selector("#plot-front .hovertext")
    assert TABLE.keys[row] in page.text_content("#plot-front .hoverlayer")


def test_clicking_a_point_selects_its_configuration(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    row = lonely_front_row()
    assert page.text_content("#panel-key") == TABLE.keys[int(TABLE.chosen or 0)]
    x, y = point(page, row)
    page.mouse.move(x, y)
    page.mouse.click(x, y)
    page.wait_for_selector(f"#panel-key:text-is('{TABLE.keys[row]}')")
    assert page.text_content("#panel-title") == "On the front"
    page.click("#back")
    assert page.text_content("#panel-key") == TABLE.keys[int(TABLE.chosen or 0)]


def test_arrow_keys_walk_along_the_front(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    cost = TABLE.columns[TABLE.cost]
    front = sorted((row for row in range(len(TABLE)) if TABLE.front[row]), key=lambda row: cost[row])
    here = front.index(int(TABLE.chosen or 0))
    page.focus("#front-keys")
    page.keyboard.press("ArrowRight")
    assert page.text_content("#panel-key") == TABLE.keys[front[here + 1]]
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.text_content("#panel-key") == TABLE.keys[front[here - 1]]


def test_tables_sort_by_numbers_both_ways(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    header = page.locator("#table-classes th", has_text="objects").locator("button")
    cells = "#table-classes tbody tr td:nth-child(2)"
    before = [int(text) for text in page.locator(cells).all_text_contents()]
    header.click()
    assert [int(text) for text in page.locator(cells).all_text_contents()] == sorted(before)
    header.press("Enter")
    assert [int(text) for text in page.locator(cells).all_text_contents()] == sorted(before, reverse=True)


def test_the_table_of_configurations_sorts_filters_and_selects(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    page.select_option("#rows-filter", "all")
    assert "of 2,048" in page.text_content("#rows-said")
    page.fill("#rows-find", "q?????????q")
    assert "of 512" in page.text_content("#rows-said")
    page.locator("#table-configurations th button", has_text="agreement AP").click()
    best = min((row for row in range(len(TABLE)) if TABLE.keys[row][0] == TABLE.keys[row][-1] == "q"),
               key=lambda row: TABLE.columns["agreement_AP"][row])
    first = page.locator("#table-configurations tbody tr").first
    assert first.locator("button").text_content() == TABLE.keys[best]
    first.locator("button").press("Enter")
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
    page.wait_for_selector("#plot-front .xtitle:has-text('latency')")
    shown = page.evaluate("document.getElementById('plot-front').data.find(t => t.name === 'front').customdata")
    expected = page.evaluate("currentFront('latency_ms', 'agreement_AP')")
    assert shown == expected
    assert len(shown) > 1


def test_hostile_names_show_as_text(open_page: Any, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    data = report_data(class_names=HOSTILE, layer_names=HOSTILE, title=HOSTILE[0], picture_name='a"b\nc<d>.jpg')
    path.write_text(render(data), encoding="utf-8")
    opened = open_page(path)
    scroll_through(opened.page)
    assert opened.page.text_content("h1") == HOSTILE[0]
    assert HOSTILE[0] in opened.page.locator("#table-classes td").all_text_contents()
    assert HOSTILE[0] in opened.page.locator("#table-layers td").all_text_contents()
    assert "<script>alert(1…" in opened.page.text_content("#plot-heat .xaxislayer-above")
    assert opened.page.locator("#plot-heat a").count() == 0
    assert opened.problems == []
    assert opened.requests == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast(report: Path, open_page: Any, scheme: str) -> None:
    page = open_page(report, color_scheme=scheme).page
    scroll_through(page)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.evaluate(CONTRAST) == []


def test_colours_change_on_demand(report: Path, open_page: Any) -> None:
    page = open_page(report, color_scheme="light").page
    page.click("#theme")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    drawn = page.evaluate("document.getElementById('plot-front').layout.font.color")
    assert drawn == page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--text').trim()")


@pytest.mark.parametrize("width", [320, 360, 390, 768, 1280])
def test_nothing_is_wider_than_the_screen(report: Path, open_page: Any, width: int) -> None:
    page = open_page(report, viewport={"width": width, "height": 800}).page
    scroll_through(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_everything_that_can_be_clicked_can_be_reached_and_has_a_name(report: Path, open_page: Any) -> None:
    page = open_page(report).page
    nameless = page.evaluate("""() => [...document.querySelectorAll('button, a[href], select, input')].filter(node =>
        !(node.getAttribute('aria-label') || node.textContent.trim() || (node.labels && node.labels.length)))
        .map(node => node.outerHTML)""")
    assert nameless == []
    assert page.evaluate("[...document.querySelectorAll('[tabindex]')].filter(n => n.tabIndex > 0).length") == 0
    assert page.evaluate("[...document.images].filter(i => !i.alt).length") == 0
