# SPDX-License-Identifier: MIT
"""`mpnet explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import pytest

from mpnet.diagnose.explanation_document import ObjectRow, Remedy, ShareRow
from mpnet.formats.documents.typed import from_json
from mpnet.report.data.explanation import heading, sentence
from tests.cli.conftest import Mpnet, document_of
from tests.networks import small_cfg, write_experiment, write_network


def test_objects_and_sentences(mpnet: Mpnet, tmp_path: Path) -> None:
    write_experiment(tmp_path, small_cfg())
    write_network(tmp_path, 2, small_cfg())
    arguments = ("explain", "experiment.yaml", "--set", "data={unlabelled: images}")
    document = document_of(mpnet(*arguments, "--worst", 3, "--images", "lost", "--json"))
    assert len(document["objects"]) == 3
    assert sum(document["lost"].values()) > 3
    assert all((tmp_path / row["file"]).stat().st_size > 500 for row in document["objects"])
    row = document["objects"][1]
    printed = mpnet(*arguments, "--object", row["object"])
    assert printed.returncode == 0
    assert row["object"] in printed.stdout
    object_sentence = sentence(from_json(ObjectRow, row, "row"))
    assert object_sentence in printed.stdout
    assert f"to fp32 {'together ' * (len(row['raise']['layers']) > 1)}bring" in object_sentence


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ((0.26, 0.2312, 0.2812), ("0.26 -> 0.23", "changes by 0.03", "(score 0.28)")),
        ((0.26, 0.2497, 0.2503), ("0.2600 -> 0.2497", "changes by 0.0103", "(score 0.2503)")),
    ],
)
def test_scores_are_told_from_the_threshold_that_they_cross(scores: tuple[float, ...], words: tuple[str, ...]) -> None:
    remedy = Remedy((0,), ("conv-1",), ("fp32",), 11.5, scores[2])
    shares = (ShareRow(0, "conv-1", 100.3, 0.0), ShareRow(2, "conv-2", -0.3, 0.0))
    row = ObjectRow(
        "a.png:1", "a.png", "lost", "disc", "small", False, (0, 0, 9, 9), scores[0], scores[1], 0.0, 0.02, shares, remedy
    )
    text = f"{heading(row)} {sentence(row)}"
    assert all(word in text for word in words)


def test_nothing_lost_names_the_threshold(mpnet: Mpnet, experiment: Path) -> None:
    text = " ".join(mpnet("explain", experiment, "--set", "precision={default: fp16}").stdout.split())
    assert "at score 0.25 or more, 0 are lost, 0 moved, 0 doubled" in text
    assert "finds all that the baseline finds at this score" in text
    run = document_of(mpnet("run", experiment, "--set", "precision={default: fp32}", "--json"))["folder"]
    compared = mpnet("compare", run, run, "--images", "lost")
    assert "lost: nothing was lost or gained, so that no image was drawn" in compared.stderr


@pytest.mark.slow
def test_a_report_says_which_layers_lose_an_object(mpnet: Mpnet, tmp_path: Path) -> None:
    write_experiment(tmp_path, small_cfg())
    write_network(tmp_path, 3, small_cfg())
    # What fp32 finds is what is labelled, so that there are lost objects; a random network finds thousands that are less sure.
    sure = ("--set", "detection.confidence=0.1", "--set", "quantization.weights=per_tensor")
    data = ("--set", "data={unlabelled: images}", *sure)
    run_document = document_of(mpnet("run", "experiment.yaml", "--set", "precision.default=fp32", *data, "--json"))
    names = sorted((tmp_path / "images").iterdir())
    by_image: dict[int, list[dict[str, Any]]] = {}
    for detection in json.loads((tmp_path / run_document["folder"] / "detections.json").read_text()):
        if detection["score"] >= 0.25:
            by_image.setdefault(detection["image_id"], []).append(detection)
    for image_id, image_detections in by_image.items():
        image = cv2.imread(str(names[image_id - 1]))
        assert image is not None
        height, width = image.shape[:2]
        lines = []
        for detection in sorted(image_detections, key=lambda detection: -float(detection["score"]))[:40]:
            x, y, w, h = detection["bbox"]
            x, y, right_edge, bottom_edge = max(x, 0), max(y, 0), min(x + w, width), min(y + h, height)
            centre, sides = ((x + right_edge) / 2 / width, (y + bottom_edge) / 2 / height), (right_edge - x, bottom_edge - y)
            lines.append(f"{detection['category_id'] - 1} {centre[0]} {centre[1]} {sides[0] / width} {sides[1] / height}")
        (tmp_path / "labels" / f"{names[image_id - 1].stem}.txt").write_text("\n".join(lines) + "\n")
    explained = document_of(mpnet("explain", "experiment.yaml", *sure, "--worst", 3, "--json"))["objects"]
    assert [row["kind"] for row in explained] == ["lost", "moved", "doubled"]
    run = document_of(mpnet("run", "experiment.yaml", *sure, "--json"))
    report = mpnet("report", run["folder"], "--explain", 3, "-o", "page.html")
    assert report.returncode == 0
    page = (tmp_path / "page.html").read_text()
    for row in explained:
        if row["kind"] != "doubled":
            assert sentence(from_json(ObjectRow, row, "row")).replace("'", "&#39;") in page
