# SPDX-License-Identifier: MIT
"""`mpnet explain`."""

from __future__ import annotations

import json
from pathlib import Path

from mpnet.report.explanation import sentence
from tests.cli.conftest import Mpnet
from tests.networks import small_cfg, write_experiment, write_network


def test_objects_and_sentences(mpnet: Mpnet, tmp_path: Path) -> None:
    write_experiment(tmp_path, small_cfg())
    write_network(tmp_path, 2, small_cfg())
    arguments = ("explain", "experiment.yaml", "--set", "data={unlabelled: images}")
    document = json.loads(mpnet(*arguments, "--worst", 3, "--images", "lost", "--json").stdout)
    assert len(document["objects"]) == 3
    assert sum(document["lost"].values()) > 3
    assert all((tmp_path / row["file"]).stat().st_size > 500 for row in document["objects"])
    row = document["objects"][1]
    printed = mpnet(*arguments, "--object", row["object"])
    assert printed.returncode == 0
    assert row["object"] in printed.stdout
    assert sentence(row) in printed.stdout
    assert f"to fp32 {'together ' * (len(row['raise']['layers']) > 1)}bring" in sentence(row)
