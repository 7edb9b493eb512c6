# SPDX-License-Identifier: MIT
"""Everything that takes weights takes those that were tuned, and what they won is told by class and size."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.weights import read_weights
from tests.cli.conftest import Mpnet, document_of
from tests.tuned import write_tuned


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """Return a folder with experiment.yaml, tuned.yaml, and plain.yaml, which has the same weights without their parent."""
    path = write_tuned(tmp_path)
    (tmp_path / "plain.yaml").write_text(path.read_text().replace("weights: net.weights", "weights: tuned.weights"))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("target", ["bundle", "ncnn", "onnx", "tflite"])
def test_exports_hold_the_tuned_weights(target: str, tuned: Path, mpnet: Mpnet) -> None:
    network = read_cfg(tuned / "net.cfg")
    last = network.convolutions[-1].index
    own, before = (
        read_weights(tuned / name, network).layers[last].biases.tobytes() for name in ("tuned.weights", "net.weights")
    )
    process = mpnet("export", "tuned.yaml", "--set", "precision.default=fp32", "--no-time", "--to", target, "-o", "out")
    assert process.returncode == 0, process.stderr
    written = b"".join(path.read_bytes() for path in sorted(tuned.glob("out*")))
    assert own in written
    assert before not in written


@pytest.mark.slow
def test_recipes_name_the_file_that_has_the_tuned_weights(tuned: Path, mpnet: Mpnet) -> None:
    """That which the network was imported from has those before."""
    notes = {}
    for source in ("plain", "tuned"):
        process = mpnet("export", f"{source}.yaml", "--to", "recipe", "-o", f"{source}.json", "--json")
        assert process.returncode == 0, process.stderr
        notes[source] = process.stdout + process.stderr
    tuned_note = "the weights were tuned for mpnet's codes: quantise "
    assert tuned_note in notes["tuned"]
    assert tuned_note not in notes["plain"]


@pytest.mark.slow
def test_detect_and_compare_take_tuned_weights(tuned: Path, mpnet: Mpnet) -> None:
    """What was won back stands by class and by size of objects beside the run before."""
    scores = {}
    for source in ("experiment", "plain", "tuned"):
        process = mpnet("detect", f"{source}.yaml", "images/scene-0.png", "--json")
        assert process.returncode == 0, process.stderr
        scores[source] = document_of(process)["files"]
    assert scores["tuned"] == scores["plain"] != scores["experiment"]
    runs = [document_of(mpnet("run", f"{source}.yaml", "--json")) for source in ("experiment", "tuned")]
    comparison = document_of(mpnet("compare", *(run["folder"] for run in runs), "--json"))
    before, after = comparison["runs"]
    assert (before["id"], after["id"]) == tuple(run["id"] for run in runs)
    assert {"AP", "AP_small"} <= after["differences"].keys()
    assert [row["name"] for row in comparison["per_class"]] == ["circle", "square", "bar"]
    assert all(len(row["differences"]) == 2 for row in comparison["per_class"])
