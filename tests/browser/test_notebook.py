# SPDX-License-Identifier: MIT
"""What notebooks show of results, in a browser: names stay text, nothing leaves the page, light and dark themes can be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mpnet.api import compare, load_network, notebook, read_experiment, report, run_experiment, sweep
from mpnet.api.network import Box, Boxes
from mpnet.tables import Table
from tests.browser.test_page import CONTRAST
from tests.networks import write_experiment

MARKUP = "<img src=x onerror=alert(1)>"
NAMES = (MARKUP, "<script>alert(2)<\\script>", '<b>"bold"&amp;\'')
THEMES = {"light": ("#ffffff", "#000000"), "dark": ("#111111", "#e0e0e0")}
"""Background and text of a cell."""


def written_notebook(path: Path, outputs: dict[str, str], theme: str) -> Path:
    """Write a page with outputs as cells of a notebook have them: fragments in the notebook's own document and colours."""
    background, text = THEMES[theme]
    style = f"body {{ background: {background}; color: {text}; font: 14px sans-serif }}"
    cells = "".join(f'<div class="output" id="{name}">{html}</div>' for name, html in outputs.items())
    path.write_text(
        f'<!doctype html><html data-ready lang="en"><meta charset="utf-8"><title>notebook</title><style>{style}</style>'
        f"<body>{cells}</body></html>",
        encoding="utf-8",
    )
    return path


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the HTML of every object that has one, of a network whose names and folder are markup."""
    folder = tmp_path_factory.mktemp("notebook") / MARKUP
    folder.mkdir()
    experiment = write_experiment(folder)
    next(folder.rglob("*.names")).write_text("\n".join(NAMES) + "\n", encoding="utf-8")
    drawings: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(notebook, "_notebook_display", lambda: drawings.append)
        patch.setattr(notebook, "LIVE_SECONDS", 0.0)
        run = run_experiment(read_experiment(experiment))
        swept = sweep(experiment, ["sweep={strategy: one_at_a_time, precisions: [fp32, int8]}"], workers=1, timed=False)
        assert run.baseline is not None
        network = load_network(folder / "net.cfg", folder / "net.weights", folder / "net.names")
        return {
            "growing": drawings[-1],
            "sweep": swept._repr_html_(),
            "run": run.result._repr_html_(),
            "layers": run.result.layers._repr_html_(),
            "classes": run.result.classes._repr_html_(),
            "comparison": compare(run.baseline, run.result)._repr_html_(),
            "network": network._repr_html_(),
            "boxes": Boxes([Box(NAMES[0], 0, 0.5, 1.0, 2.0, 3.0, 4.0)])._repr_html_(),
            "table": Table({MARKUP: [MARKUP, "b"]}, MARKUP)._repr_html_(),
            "report": report(swept, out=folder / "page.html", compute=False)._repr_html_(),
        }


@pytest.mark.parametrize("theme", list(THEMES))
def test_names_stay_text_and_nothing_leaves_the_page(
    outputs: dict[str, str], theme: str, tmp_path: Path, open_page: Any
) -> None:
    watched = open_page(written_notebook(tmp_path / "notebook.html", outputs, theme), color_scheme=theme)
    page = watched.page
    page.frame_locator("#report iframe").locator("html[data-ready]").wait_for()
    assert page.locator("img, script").count() == 0
    for name in ("classes", "boxes", "network", "table"):
        assert MARKUP in page.locator(f"#{name}").inner_text()
    assert page.locator("#report iframe").count() == 1
    assert watched.problems == []
    assert [address for address in watched.requests if address != "about:srcdoc"] == []


@pytest.mark.parametrize("theme", list(THEMES))
def test_every_text_has_contrast(outputs: dict[str, str], theme: str, tmp_path: Path, open_page: Any) -> None:
    page = open_page(written_notebook(tmp_path / "notebook.html", outputs, theme), color_scheme=theme).page
    frame = page.frame_locator("#report iframe")
    frame.locator("html[data-ready]").wait_for()
    assert page.evaluate(CONTRAST) == []
    assert frame.locator("body").evaluate(f"() => ({CONTRAST[CONTRAST.index('() =>') :]})()") == []
