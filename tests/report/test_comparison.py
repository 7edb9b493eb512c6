# SPDX-License-Identifier: MIT
"""Runs side by side: what is real, what is noise, what was lost; as document, as tables, as images."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from rich.console import Console

from mpnet.data.detections import Detections
from mpnet.errors import ConfigError, DataError
from mpnet.evaluation.compare import DRAWS, found_objects
from mpnet.evaluation.intervals import METHOD
from mpnet.evaluation.match import Truths
from mpnet.report.collect.compare_runs import compare_runs
from mpnet.report.collect.comparison import check_limits
from mpnet.report.collect.detection_pairs import Pairing, overlap
from mpnet.report.collect.images import CROP_SIDE
from mpnet.report.collect.report import collect
from mpnet.report.data.comparison import Comparison
from mpnet.report.html.page import render
from mpnet.report.text.comparison import print_comparison
from mpnet.trial.result import Result
from tests.report.made_runs import NAMES, make_dataset, make_detections, make_runs
from tests.report.test_sweep_store import quiet


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Result, Result]:
    return make_runs(tmp_path_factory.mktemp("runs"))


def folders(runs: tuple[Result, ...]) -> list[Path]:
    return [run.folder for run in runs]


def test_noise_and_a_real_loss_are_told_apart(runs: tuple[Result, Result, Result]) -> None:
    document = compare_runs(folders(runs)).document
    nearly_equal, worse = document["runs"][1:]
    assert nearly_equal["intervals"]["AP"]["within_noise"] is True
    assert worse["intervals"]["AP"]["within_noise"] is False
    assert worse["intervals"]["agreement_AP"]["within_noise"] is None  # it cannot be positive, so zero says nothing
    assert worse["intervals"]["AP"]["high"] < 0
    assert worse["differences"]["AP"] == runs[2].metrics["AP"] - runs[0].metrics["AP"]
    assert document["draws"] == DRAWS
    assert document["intervals_by"] == f"{METHOD}, {DRAWS:,} draws"


def test_a_run_differs_from_itself_by_nothing(runs: tuple[Result, Result, Result]) -> None:
    run = compare_runs([runs[0].folder, runs[0].folder]).document["runs"][1]
    interval = run["intervals"]["AP"]
    assert interval["difference"] == 0.0
    assert interval["high"] == -interval["low"] > 0  # other images might show something
    assert run["agreement"]["AP"] == 100.0
    assert run["changes"] == []


def test_the_same_seed_gives_the_same_document(runs: tuple[Result, Result, Result]) -> None:
    document, repeated, of_other_seed = (compare_runs(folders(runs), seed=seed, draws=200).document for seed in (3, 3, 4))
    assert document == repeated
    assert document != of_other_seed


def test_lost_objects_are_those_that_only_the_baseline_finds(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path)
    baseline, detections = make_detections(dataset, 1, 0.5, 0.2), make_detections(dataset, 2, 0.5, 0.3)
    truths = Truths.of_dataset(dataset)
    in_baseline, in_other = found_objects(baseline, truths) >= 0, found_objects(detections, truths) >= 0
    pair = Pairing(dataset, baseline, draws=100).pair(detections)
    lost_changes = [change for change in pair.changes if change.kind != "gained"]
    assert len(lost_changes) == np.count_nonzero(in_baseline & ~in_other)
    assert len(pair.changes) - len(lost_changes) == np.count_nonzero(in_other & ~in_baseline)
    assert all(change.overlap >= 0.5 and change.score >= 0.25 for change in pair.changes)  # type: ignore[attr-defined]
    assert sum(score.lost + score.gained for score in pair.images) == len(pair.changes)


def test_an_object_whose_box_fits_too_little_is_moved_and_not_lost(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, count=2)
    score = np.full(len(dataset.box), 0.9)
    exact = Detections.of(2, dataset.image_index, dataset.category, score, dataset.box)
    shifted = dataset.box.copy()
    shifted[0, 0] += shifted[0, 2] / 2  # an IoU of a third
    detections = Detections.of(2, dataset.image_index[:-1], dataset.category[:-1], score[:-1], shifted[:-1])
    changes = Pairing(dataset, exact, draws=100).pair(detections).changes
    assert [change.kind for change in changes] == ["lost", "moved"]


def test_sizes_that_occur_are_compared(runs: tuple[Result, Result, Result]) -> None:
    run = compare_runs(folders(runs)).document["runs"][1]
    assert "AP_small" in run["intervals"]
    assert "AP_large" not in run["intervals"]


def test_limits(runs: tuple[Result, Result, Result]) -> None:
    comparison = compare_runs(folders(runs), draws=100)
    assert check_limits(comparison, {"AP": -100.0}) == []
    broken = check_limits(comparison, {"AP": -5.0, "agreement_AP": -5.0})
    assert [line.split(":")[0] for line in broken] == ["int8 cccccccc", "int8 cccccccc"]
    with pytest.raises(ConfigError, match="--fail-under mAP: was not compared; known are AP"):
        check_limits(comparison, {"mAP": 0.0})


def test_images_of_lost_objects(runs: tuple[Result, Result, Result], tmp_path: Path) -> None:
    changes = compare_runs([runs[0].folder, runs[2].folder], draws=100, images=tmp_path / "lost").document["runs"][1]["changes"]
    files = sorted((tmp_path / "lost").iterdir())
    assert [str(path) for path in files] == sorted(change["file"] for change in changes)
    image = cv2.imread(str(files[0]))
    assert image is not None
    assert image.shape[1] == 2 * CROP_SIDE


def test_without_images_metrics_remain(tmp_path: Path) -> None:
    runs = make_runs(tmp_path)
    (tmp_path / "data" / "labels" / "p00.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    document = compare_runs(folders(runs)).document
    assert "have changed since this was measured" in document["missing"]
    assert document["draws"] == 0
    assert document["runs"][2]["differences"]["AP"] < 0
    with pytest.raises(DataError, match="have changed"):
        compare_runs(folders(runs), images=tmp_path / "lost")
    assert not (tmp_path / "lost").exists()


def test_the_tables_are_plain_in_a_pipe(runs: tuple[Result, Result, Result]) -> None:
    comparison = compare_runs(folders(runs), draws=100)
    stream = io.StringIO()
    print_comparison(comparison, Console(file=stream, width=200, markup=False, emoji=False, highlight=False))
    text = stream.getvalue()
    assert "\x1b" not in text
    assert "] noise" in text
    assert "objects lost" in text
    assert NAMES[1] in text
    json.dumps(comparison.document, allow_nan=False)


def printed(comparison: Comparison) -> str:
    output = io.StringIO()
    print_comparison(comparison, Console(file=output, width=100))
    return output.getvalue()


def test_classes_of_few_objects_are_told_and_not_ranked(runs: tuple[Result, Result, Result]) -> None:
    comparison = compare_runs(folders((runs[0], runs[2])))
    rare, *others = comparison.per_class
    text = printed(replace(comparison, per_class=(replace(rare, truths=2), *others)))
    ranked = text[text.index("AP per class") :].split("at score")[0]
    assert (
        f"1 class has at most 3 objects, so that one more or less makes tens of points, and is not ranked: {rare.name} (2)."
        in (" ".join(ranked.split()))
    )
    assert not re.search(rf"^{rare.name}  ", ranked, re.MULTILINE)
    assert all(len(re.findall(re.escape(row.name), ranked)) == 1 for row in others)


def test_nothing_lost_is_said(runs: tuple[Result, Result, Result]) -> None:
    text = printed(compare_runs([runs[0].folder, runs[0].folder]))
    assert "0 objects lost, 0 gained (score 0.25 or more, IoU 0.5)" in text
    assert "0 objects lost" not in printed(replace(compare_runs([runs[0].folder, runs[0].folder]), missing="no images"))


def test_the_tables_need_no_unicode(runs: tuple[Result, Result, Result]) -> None:
    comparison = compare_runs(folders(runs), draws=100)
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    print_comparison(comparison, Console(file=stream, width=200, markup=False, emoji=False, highlight=False))
    stream.flush()
    assert b"####" in stream.buffer.getvalue()  # type: ignore[attr-defined]


def test_a_report_of_runs(runs: tuple[Result, Result, Result]) -> None:
    data = collect(folders(runs), progress=quiet, draws=200, compute=False)
    table = data.configurations
    assert (table.baseline, table.chosen) == (0, 2)
    assert data.intervals[2]["AP"].high < 0
    assert data.images
    assert {change.kind for change in data.changes} >= {"lost", "gained"}
    html = render(data)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "a real loss" in html


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((0, 0, 10, 10), (0, 0, 10, 10), 1.0),
        ((0, 0, 10, 10), (5, 0, 10, 10), 1 / 3),
        ((0, 0, 1, 1), (5, 5, 1, 1), 0.0),
        ((0, 0, 0, 0), (0, 0, 0, 0), 0.0),
    ],
)
def test_overlap(a: tuple[float, ...], b: tuple[float, ...], expected: float) -> None:
    assert overlap(np.array(a, dtype=float), np.array(b, dtype=float)) == pytest.approx(expected, abs=1e-15)


def test_a_runs_agreement_and_its_interval_are_with_the_reports_own_baseline(tmp_path: Path) -> None:
    results = make_runs(tmp_path)
    for result in results:
        document = {
            **result.document,
            "agreement": {"baseline": "9" * 16, "AP": 12.5, "AP75": 12.5, "AP95": 12.5, "head_sqnr_db": [7.0]},
        }
        (result.folder / "result.json").write_text(json.dumps(document), encoding="utf-8")
    data = collect(folders(results), progress=quiet, draws=200, compute=False)
    assert data.configurations.value(0, "agreement_AP") == 100
    agreement, interval = data.configurations.value(2, "agreement_AP"), data.intervals[2]["agreement_AP"]
    assert agreement == pytest.approx(100 + interval.difference)
    assert 100 + interval.low <= agreement <= 100 + interval.high
    assert "head_sqnr_db" not in data.configurations.columns


def test_nobody_chose_the_last_of_several_runs(runs: tuple[Result, Result, Result]) -> None:
    html = render(collect(folders(runs), progress=quiet, draws=100, compute=False))
    assert "the last run reaches AP" in html
    assert "chosen configuration" not in html.lower()
