# SPDX-License-Identifier: MIT
"""What identifies a stored result stays as 0.1.0 made it: a reworded text would make strangers of all stored results."""

from __future__ import annotations

from pathlib import Path

from tests.classifier.conftest import shapes
from tests.cli.conftest import Mpnet, document_of, experiment, mpnet

__all__ = ["experiment", "mpnet", "shapes"]


def test_of_a_detector(mpnet: Mpnet, experiment: Path) -> None:
    digests = document_of(mpnet("run", experiment, "--no-baseline", "--json"))["digests"]
    assert digests["protocol"] == "5baa4890fee80f37ea3575484e4d57c4a6a9f93c0026826b0878a4f579b46b4f"
    assert digests["options"] == "9fc0a5ab98aababc810a7e6338b55d42d329f3d48021c13479fbc3c5c422d553"
    assert digests["plan"] == "f8fa50b9152f7f1037dfebae0dd46f6f24a91c2c3932d71154da24c00f91a867"
    assert digests["arithmetic"] == "1"


def test_of_a_classifier(mpnet: Mpnet, shapes: Path, tmp_path: Path) -> None:
    digests = document_of(
        mpnet("run", shapes / "shapes.yaml", "--no-baseline", "--json", "--set", "data.limit=3", "--set", f"output={tmp_path}")
    )["digests"]
    assert digests["protocol"] == "97b9f7000ca28db670106da6368314ee335e6d46fb00991bcdabb2b91d6eab17"
