# SPDX-License-Identifier: MIT
"""Results and latency tables with a value of any type in any place are read, or refused in one line."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any, Callable

import pytest

from mpnet.errors import MpnetError
from mpnet.model.precision import PRECISIONS
from mpnet.resolve.stored import find_configuration
from mpnet.speed.latency_table import TABLE, read_table
from tests.cli.conftest import Mpnet
from tests.formats.changed_json import paths_of, replace_at
from tests.networks import small_cfg, write_experiment

VALUES = ("x", "x" * 10_000, "\n", "", -1, 1.5, 1e308, 1 << 70, True, None, [], {}, [{}], [1], float("nan"))
CASES = 1_000
LATENCY = {
    **TABLE.head,
    "network": "1" * 64,
    "precisions": list(PRECISIONS),
    "machine": {"cpu": "c", "threads": 1, "isa": "scalar"},
    "steps": {"conv": 1.5, "pool": 0.25},
    "checks": [{"precision": "ff", "measured_ms": 1.0, "predicted_ms": 1.1}],
    "error_percent": {"mean": 10.0, "largest": 10.0},
}


def refused(file: Path, intact: Any, read_document: Callable[[], object]) -> int:
    """Return how many of some documents are refused, all in one line that names the file; any other error fails the test."""
    cases = list(itertools.product(paths_of(intact), VALUES))
    count = 0
    for path, value in random.Random(5).sample(cases, min(CASES, len(cases))):
        file.write_text(json.dumps(replace_at(intact, path, value)), encoding="utf-8")
        try:
            read_document()
        except MpnetError as error:
            assert "\n" not in str(error), (path, value)
            assert len(str(error)) < 1_000, (path, value)
            count += 1
    return count


@pytest.mark.slow
def test_results(mpnet: Mpnet, tmp_path: Path) -> None:
    assert mpnet("run", write_experiment(tmp_path, small_cfg()), "--threads", 1, "-q").returncode == 0
    file = min(tmp_path.glob("runs/*/*/result.json"))
    intact = json.loads(file.read_text(encoding="utf-8"))
    assert refused(file, intact, lambda: find_configuration(str(file.parent))) > CASES / 3


def test_latency_tables(tmp_path: Path) -> None:
    file = tmp_path / "board.json"
    file.write_text(json.dumps(LATENCY), encoding="utf-8")
    read_table(file)
    assert refused(file, LATENCY, lambda: read_table(file).as_json()) > 50
