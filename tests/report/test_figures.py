# SPDX-License-Identifier: MIT
"""Figures as data, as SVG and as files; sensitivities; sentences."""

from __future__ import annotations

import csv
import io
import json
import math
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpnet.errors import StoreError
from mpnet.evaluation.compare import Interval
from mpnet.formats.files.atomic import write_text
from mpnet.report.collect.results import mean_sqnr
from mpnet.report.data import figures
from mpnet.report.data.sensitivity import by_layer
from mpnet.report.data.summary import in_words, sentences, verdict
from mpnet.report.export import csv_text, json_text, write_data, write_figures
from mpnet.report.html import svg
from mpnet.report.html.page import render
from tests.report.synthetic import configurations, report_data

HOSTILE = '<a href="x">&\n'


def test_every_figure_is_a_whole_svg_document() -> None:
    data = report_data(class_names=(HOSTILE, "b", "c"), layer_names=(HOSTILE,))
    for figure in figures.all_figures(data):
        root = ElementTree.fromstring(svg.draw(figure))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "nan" not in svg.draw(figure)
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert tags <= {"svg", "title", "rect", "path", "circle", "text"}


def test_the_svg_of_the_front_has_a_dot_for_every_configuration() -> None:
    data = report_data()
    figure = figures.front(data)
    assert figure is not None
    dots = svg.draw(figure).count("<circle")
    assert dots == len(data.configurations) + 4  # baseline and picks are drawn once more


def test_figures_and_data_are_written_side_by_side(tmp_path: Path) -> None:
    data = report_data()
    names = {path.stem for path in write_figures(data, tmp_path / "a")}
    paths = write_data(data, tmp_path / "b")
    assert {path.stem for path in paths} == names | {"changes"}
    front = json.loads((tmp_path / "b" / "front.json").read_text())
    assert front["AP"] == data.configurations.columns["AP"].tolist()
    rows = list(csv.DictReader(io.StringIO((tmp_path / "b" / "front.csv").read_text())))
    assert [float(row["AP"]) for row in rows] == front["AP"]
    assert [row["precision"] for row in rows] == front["precision"]


def test_cells_that_look_like_formulas_are_defused() -> None:
    text = csv_text({"@name": ["=1+1", "plain", 'a "b", c'], "value": [-1.5, math.nan, math.inf]})
    assert list(csv.reader(io.StringIO(text))) == [["'@name", "value"], ["'=1+1", "-1.5"], ["plain", ""], ['a "b", c', ""]]
    assert json.loads(json_text({"value": [math.nan, np.float64(2.5)]})) == {"value": [None, 2.5]}


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/x\.html: cannot be written"):
        write_text(tmp_path / "file" / "x.html", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_sensitivities_are_differences_of_stored_values() -> None:
    table = configurations()
    values = dict(zip(table.keys, table.columns["AP"], strict=True))
    sensitivities = by_layer(table, report_data().layers, "AP")
    assert len(sensitivities) == 11
    third = sensitivities[2]
    assert third.alone == values["ffqffffffff"] - values["f" * 11]
    assert third.kept_high == values["qqfqqqqqqqq"] - values["q" * 11]


def test_sensitivities_of_a_ratio_without_noise_are_values() -> None:
    table = configurations()
    values = dict(zip(table.keys, table.columns["head_sqnr_db"], strict=True))
    sensitivities = by_layer(table, report_data().layers, "head_sqnr_db")
    assert sensitivities[0].alone == values["qffffffffff"]
    assert sensitivities[0].kept_high == values["fqqqqqqqqqq"]


def test_the_legend_has_no_bars_that_nobody_measured() -> None:
    """As after a strategy that lowers each layer alone."""
    table, data = configurations(), report_data()
    rows = [row for row, key in enumerate(table.keys) if key.count("q") < 2]
    reduced = replace(
        table,
        keys=tuple(table.keys[row] for row in rows),
        front=table.front[rows],
        columns={name: values[rows] for name, values in table.columns.items()},
        chosen=None,
    )
    one_way = replace(data, configurations=reduced, picks=(), intervals={})
    for figure, full_figure in zip(figures.sensitivities(one_way), figures.sensitivities(data), strict=True):
        assert [series.name for series in figure.series] == ["only this layer in int8"]
        assert [series.name for series in full_figure.series] == ["only this layer in int8", "all but this layer in int8"]
    phrase = "when all but this layer are"
    assert (phrase in render(one_way), phrase in render(data)) == (False, True)


def test_layers_that_were_not_tried_have_no_sensitivity() -> None:
    table = configurations()
    rows = [row for row, key in enumerate(table.keys) if key.count("q") in (0, 11)]
    reduced = replace(
        table,
        keys=tuple(table.keys[row] for row in rows),
        columns={name: values[rows] for name, values in table.columns.items()},
        front=table.front[rows],
        chosen=1,
    )
    assert by_layer(reduced, report_data().layers, "AP") == ()


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        (Interval(-0.2, -0.6, 0.2), "within noise"),
        (Interval(-0.9, -1.4, -0.4), "a real loss"),
        (Interval(0.9, 0.4, 1.4), "a real gain"),
        (Interval(0.0, 0.0, 0.0), "within noise"),
    ],
)
def test_verdicts(interval: Interval, words: str) -> None:
    assert verdict(interval).startswith(words)


def test_the_summary_is_three_sentences() -> None:
    summary = sentences(report_data())
    assert len(summary) == 3
    assert all(text.endswith(".") for text in summary)


def test_heads_count_alike_in_one_ratio() -> None:
    assert mean_sqnr([20.0, 20.0]) == pytest.approx(20.0, abs=1e-12)
    assert mean_sqnr([None, 20.0]) == pytest.approx(20 + 10 * math.log10(2), abs=1e-12)
    assert mean_sqnr([None, None]) == math.inf


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.2, 7.9), (41.2, 45.7), (0.0, 6.3e11), (1e-7, 3e-7)])
def test_ticks_are_round_and_inside(low: float, high: float) -> None:
    numbers = svg.ticks(low, high)
    assert 2 <= len(numbers) <= 12
    assert min(numbers) >= low - 1e-9 * (high - low)
    assert max(numbers) <= high + 1e-9 * (high - low)
    assert np.allclose(np.diff(numbers), numbers[1] - numbers[0])


@pytest.mark.parametrize("seed", range(5))
def test_names_of_marks_cover_neither_each_other_nor_marks(seed: int) -> None:
    canvas = svg.Canvas(640, 400, svg.PRINT, (64, 30, 14, 46))
    neighbours = np.random.default_rng(seed).normal((150 + 100 * seed, 200), 14, (4, 2))
    names = ("safe", "balanced", "smallest", "baseline")
    marks = [(float(x), float(y), name) for (x, y), name in zip(neighbours, names, strict=True)]
    boxes = [(x - svg.MARK, y - svg.MARK, x + svg.MARK, y + svg.MARK) for x, y, _ in marks]
    for (x, y, anchor), (_, _, name) in zip(svg.name_places(marks, canvas), marks, strict=True):
        wide = svg.LETTER * len(name)
        label_left = x - wide if anchor == "end" else x
        box = (label_left, y - 9, label_left + wide, y + 3)
        assert canvas.left <= box[0] <= box[2] <= canvas.right
        assert canvas.top <= box[1] <= box[3] <= canvas.bottom
        assert all(box[2] <= a or c <= box[0] or box[3] <= b or d <= box[1] for a, b, c, d in boxes)
        boxes.append(box)


def test_a_front_that_spans_a_decade_of_costs_has_a_logarithmic_axis() -> None:
    data = report_data()
    table = data.configurations
    for low, expected in ((1e9, True), (5e9, False), (0.0, False)):
        costs = np.linspace(low, 2e10, len(table))
        figure = figures.front(replace(data, configurations=replace(table, columns={**table.columns, table.cost: costs})))
        assert figure is not None
        assert figure.log == expected
        drawing = svg.draw(figure, 640, 400)
        assert (">2G<" in drawing and ">5G<" in drawing and ">10G<" in drawing) or not expected
    assert svg.log_ticks(9.0, 10.0) == [1e9, 2e9, 5e9, 1e10]
    assert svg.log_ticks(0.0, 6.0) == [10.0**power for power in range(7)]


def test_a_precision_string_in_words_names_few_layers_and_counts_many() -> None:
    data = report_data()
    names = [layer.name for layer in data.weighted]
    count = len(names)
    assert in_words(data, "q" * count) == "int8 everywhere"
    assert in_words(data, "h" + "q" * (count - 2) + "h") == f"int8, but fp16 in {names[0]}, {names[-1]}"
    assert in_words(data, "f" + "q" * (count - 1)) == f"int8, but fp32 in {names[0]}"
    assert in_words(data, "q" * 9 + "h" * 8) == "int8 in 9 layers, fp16 in 8"  # not a key of this network
