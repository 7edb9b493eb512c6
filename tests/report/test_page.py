# SPDX-License-Identifier: MIT
"""The page as a file: what it holds, what it refuses to hold, and how names that look like markup appear."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

from mpnet.evaluation.compare import Interval
from mpnet.evaluation.operating_point import OperatingPoint
from mpnet.report.data.differences import Guess, ImageChange
from mpnet.report.data.report_data import Omission, Pick
from mpnet.report.html import page, values
from tests.evaluation.evaluation_cases import random_dataset, random_detections
from tests.report.synthetic import configurations, report_data

MAX_BYTES = 12_000_000
HOSTILE = ("<script>alert(1)</script>", "quote \" and ' and\nnewline", "</script><img src=x onerror=alert(2)>", "{{ 7 * 7 }}")


class Text(HTMLParser):
    """Collects tags with attributes, and all text outside scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._skipped_tag = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._skipped_tag = tag
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._skipped_tag:
            self._skipped_tag = ""

    def handle_data(self, data: str) -> None:
        if self._skipped_tag:
            self.scripts[-1] += data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


@pytest.fixture(scope="module")
def html() -> str:
    return page.render(report_data())


@pytest.fixture(scope="module")
def parsed(html: str) -> Text:
    return Text(html)


def embedded(html: str) -> dict[str, object]:
    """Return the JSON document that the page's program reads."""
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert match is not None
    document = json.loads(match[1])
    assert isinstance(document, dict)
    return document


def test_page_is_small_enough(html: str) -> None:
    assert len(html.encode()) < MAX_BYTES


def test_page_names_no_address_that_could_be_fetched(parsed: Text) -> None:
    addresses = [
        value
        for _, attributes in parsed.tags
        for name, value in attributes.items()
        if name in ("src", "href", "action", "poster", "srcset") and value is not None
    ]
    external = [a for a in addresses if not a.startswith(("#", "data:"))]
    assert external == []


def test_policy_allows_exactly_the_scripts_of_the_page(parsed: Text) -> None:
    policy = next(
        attributes["content"] for _, attributes in parsed.tags if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    program = next(text for text in parsed.scripts if "startFront" in text)
    digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]


def test_hostile_names_are_text() -> None:
    data = report_data(class_names=HOSTILE, layer_names=HOSTILE, title=HOSTILE[0], image_name='a"b\nc<d>.jpg')
    html = page.render(data)
    parsed = Text(html)
    plain = Text(page.render(report_data(class_names=("a", "b", "c", "d"))))
    assert parsed.count("script") == plain.count("script")
    assert parsed.count("img") == plain.count("img")
    assert all("onerror" not in attributes for _, attributes in parsed.tags)
    assert HOSTILE[0] in parsed.text
    assert HOSTILE[2] in parsed.text
    assert "49" not in [word.strip() for word in parsed.words]
    names = [layer["name"] for layer in embedded(html)["layers"]]  # type: ignore[attr-defined, index,union-attr]
    assert names[0] == HOSTILE[0]


def test_names_do_not_turn_what_stands_behind_them_around() -> None:
    """COCO files name classes with any characters; a page shows them as a terminal does."""
    names = ("a\u202eb", "c\x1b[31md", "e\u2066f", "g\u200bh")
    html = page.render(report_data(class_names=names, layer_names=names, title=names[0], image_name="i\u202ej.jpg"))
    assert {character for name in names for character in name if not character.isprintable()}.isdisjoint(html)
    assert "a\\u202eb" in Text(html).text
    assert embedded(html)["layers"][0]["name"] == "a\\u202eb"  # type: ignore[index]


def test_columns_survive_exactly(html: str) -> None:
    table = embedded(html)["table"]
    assert isinstance(table, dict)
    expected = configurations()
    assert table["keys"] == list(expected.keys)
    for name, text in table["columns"].items():
        actual = np.frombuffer(base64.b64decode(text), dtype="<f8")
        assert np.array_equal(actual, expected.columns[name], equal_nan=True), name


def test_every_section_is_there_in_its_order(parsed: Text) -> None:
    ids = {attributes.get("id") for _, attributes in parsed.tags}
    sections = ["summary", "choice", "classes", "pictures", "sensitivity", "error", "layers", "configurations", "protocol"]
    assert [name for name in (attributes.get("id") for _, attributes in parsed.tags) if name in sections] == sections
    assert {"plot-heat", "plot-front", "confusion"} <= ids


@pytest.mark.parametrize(
    ("state", "words"),
    [("running", "This sweep is still running: 1,200 of 2,048"), ("interrupted", "This sweep was interrupted: 1,200 of 2,048")],
)
def test_unfinished_sweeps_say_so(state: str, words: str) -> None:
    parsed = Text(page.render(report_data(state=state)))
    assert words in parsed.text
    assert f"{state}: 1,200 of 2,048" in parsed.text


def test_missing_parts_are_named() -> None:
    omission = Omission("Error per layer", "the weights file has moved", "Put it back.")
    data = replace(report_data(), errors=(), omissions=(omission,))
    parsed = Text(page.render(data))
    assert "the weights file has moved" in parsed.text
    assert "error" not in {attributes.get("id") for _, attributes in parsed.tags}


def test_the_same_data_give_the_same_bytes() -> None:
    assert page.render(report_data()) == page.render(report_data())


def test_agreement_has_an_interval_and_no_verdict() -> None:
    data = report_data()
    assert data.configurations.chosen is not None
    interval = Interval(0.0, -1.25, 0.0)
    data = replace(data, intervals={data.configurations.chosen: {"agreement_AP": interval, "AP": interval}})
    notes = {tile.label: tile.note for tile in values.list_tiles(data)}
    assert notes["agreement AP"] == "95 %: 98.75 to 100.00"
    assert notes["AP"] == "95 %: −1.25 to +0.00, within noise"


def test_held_out_figures_stand_beside_those_that_chose() -> None:
    data = report_data()
    columns = dict(data.configurations.columns)
    columns |= {f"held_out_{name}": columns[name] - 0.5 for name in ("AP", "AP50", "agreement_AP")}
    data = replace(data, held_out=58, configurations=replace(data.configurations, columns=columns))
    parsed = Text(page.render(data))
    assert "the 57 images that chose" in parsed.text
    assert "AP on the 58 held-out images" in " ".join(parsed.text.split())
    assert "On the 58 held-out images the chosen configuration reaches" in parsed.text


def test_all_classes_are_listed_and_the_missing_ones_counted() -> None:
    names = tuple(f"class {i}" for i in range(33))
    data = report_data(class_names=names)
    parsed = Text(page.render(replace(data, classes=data.classes[:20])))
    assert "13 more have no object in these images and are not listed" in parsed.text
    assert {f"class {i}" for i in range(20)} <= set(parsed.words)


def test_images_that_a_classifier_lost_have_no_size() -> None:
    changes = ImageChange("lost", "p.png", "circle", 0.75, Guess("circle", 0.75), Guess("square", 0.5))
    data = replace(report_data(), changes=(changes,), confusion=None, protocol={"task": "classification", "images": 115})
    parsed = Text(page.render(replace(data, classes=())))
    assert "1 image lost and 0 gained" in parsed.text
    assert "True size" not in parsed.text


def test_the_threshold_in_use_has_a_section_where_it_is_known() -> None:
    dataset = random_dataset(3)
    text = [random_detections(dataset, seed) for seed in (4, 5)]
    point = OperatingPoint(dataset, text[0], 0.4).of(text[1])
    parsed = Text(page.render(replace(report_data(), operating_point=point)))
    assert {"threshold", "table-threshold", "table-threshold-classes"} <= {
        str(attributes.get("id")) for _, attributes in parsed.tags
    }
    assert f"{point['objects']} objects of {point['images']} images" in parsed.text
    assert "In use, at score 0.400" in parsed.text
    assert "correct detections (%)" in parsed.text
    assert "missed entirely" in parsed.text
    assert "In use, at score" not in Text(page.render(report_data())).text


def test_commands_on_the_page_are_one_word_each_to_a_shell() -> None:
    data = report_data()
    data = replace(data, source="my runs/x;$(touch y).sqlite", picks=(Pick("safe", "rule", data.configurations.keys[0], 0),))
    [command] = re.findall(r"<code>(mpnet export .*?)</code>", page.render(data))
    expected = ["mpnet", "export", "my runs/x;$(touch y).sqlite:safe", "--to", "cfg", "-o", "safe.cfg"]
    assert shlex.split(unescape(command)) == expected


def test_a_configuration_that_is_picked_twice_has_one_card() -> None:
    data = report_data()
    key = data.configurations.keys[0]
    picks = [Pick(name, f"rule of {name}", key, 0) for name in ("safe", "balanced")]
    second_pick = Pick("smallest", "rule of smallest", data.configurations.keys[1], 1)
    cards = values.pick_cards(replace(data, picks=(*picks, second_pick)))
    assert [card.names for card in cards] == ["safe, balanced", "smallest"]
    assert cards[0].rules == "rule of safe; balanced: rule of balanced"
