# SPDX-License-Identifier: MIT
"""Errors at one threshold in words that have one meaning each."""

from __future__ import annotations

import io
import re

from rich.console import Console

from mpnet.evaluation.operating_point import OperatingPoint
from mpnet.report.text.operating_point import print_operating_point
from tests.evaluation.evaluation_cases import random_dataset, random_detections


def test_tables_say_their_threshold_and_no_two_rows_have_one_name() -> None:
    dataset = random_dataset(3)
    baseline, run = (random_detections(dataset, seed) for seed in (4, 5))
    point = OperatingPoint(dataset, baseline, 0.4).of(run)
    output = io.StringIO()
    print_operating_point(point, Console(file=output, width=100), details=True)
    text = output.getvalue()
    rows = [match[1] for match in re.finditer(r"^([a-z][a-z ]+?(?: \(%\))?) {2,}\d", text, re.MULTILINE)]
    assert {"objects missed", "correct detections (%)", "missed entirely"} <= set(rows)
    assert len(set(rows)) == len(rows)
    assert "precision" not in text  # which is that of layers
    titles = [line for line in text.splitlines() if "score 0.400" in line]
    assert len(titles) == 3  # counts, kinds of errors, classes
