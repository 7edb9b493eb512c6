# SPDX-License-Identifier: MIT
"""Every example in experiments/ is a valid experiment, and those of the demo run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mpnet.demo.project import write_project
from mpnet.formats.documents.experiment import read_experiment

FOLDER = Path(__file__).resolve().parent.parent / "experiments"
FILES = sorted(FOLDER.glob("*.yaml"))
STUDY = FOLDER / "yolov3-tiny"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_example_is_valid(path: Path) -> None:
    experiment = read_experiment(path)
    assert experiment.name == path.stem
    assert experiment.data is not None


@pytest.mark.parametrize("path", sorted(STUDY.glob("*.yaml")), ids=lambda path: path.name)
def test_the_files_of_the_study_share_one_store(path: Path) -> None:
    """Which is named after network, images and protocol."""
    experiment, reference = read_experiment(path), read_experiment(STUDY / "each-precision.yaml")
    assert experiment.sweep is not None
    assert (experiment.name, experiment.output) == ("yolov3-tiny", reference.output)
    assert (experiment.model, experiment.data, experiment.detection) == (reference.model, reference.data, reference.detection)


def test_the_images_of_the_study_are_cut_out_of_coco_s_annotations(tmp_path: Path) -> None:
    names = [*(STUDY / "images.txt").read_text(encoding="utf-8").split(), "other.jpg"]
    assert len(set(names)) == 80
    images = [{"id": number, "file_name": name} for number, name in enumerate(names)]
    boxes = [{"id": 1, "image_id": 3, "bbox": [0, 0, 1, 1], "segmentation": [[0, 0, 1, 1]]}, {"id": 2, "image_id": 79}]
    source, target = tmp_path / "all.json", tmp_path / "study.json"
    source.write_text(json.dumps({"images": images, "annotations": boxes, "categories": [{"id": 1}]}), encoding="utf-8")
    subprocess.run([sys.executable, str(STUDY / "images.py"), str(source), str(target)], check=True, timeout=60)
    annotations = json.loads(target.read_text(encoding="utf-8"))
    assert annotations["images"] == images[:-1]
    assert annotations["annotations"] == [{"id": 1, "image_id": 3, "bbox": [0, 0, 1, 1]}]
    assert annotations["categories"] == [{"id": 1}]


@pytest.mark.slow
@pytest.mark.parametrize("command", [["run", "demo.yaml"], ["run", "demo-calibrated.yaml"], ["sweep", "demo-greedy.yaml"]])
def test_examples_of_the_demo_run(command: list[str], repository: Path, tmp_path: Path) -> None:
    write_project(tmp_path / "runs" / "demo", scenes=8)
    (tmp_path / "experiments").mkdir()
    example = tmp_path / "experiments" / command[1]
    example.write_bytes((repository / "experiments" / command[1]).read_bytes())
    arguments = [command[0], str(example), "--json", "--quiet", "--set", "data.calibration.count=4"]
    result = subprocess.run(
        [sys.executable, "-m", "mpnet", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600
    )
    assert result.returncode == 0, result.stderr
    assert isinstance(json.loads(result.stdout), dict)
