# SPDX-License-Identifier: MIT
"""The trained classifier of this folder with a small labelled set: crops of the demo's scenes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.classifier.crops import write_imagefolder

FOLDER = Path(__file__).resolve().parent
SCENES = 24
# Symmetric ranges and one scale per tensor: the scheme of the simplest hardware, which this network feels.
EXPERIMENT = """\
name: shapes
model: {{cfg: {here}/shapes.cfg, weights: {here}/shapes.weights, names: {here}/shapes.names}}
data: {{format: imagefolder, images: val/}}
precision: {{default: int8}}
quantization: {{activations: {{mode: symmetric}}, weights: per_tensor}}
runtime: {{threads: 1}}
sweep: {{strategy: one_at_a_time, holdout: 0}}
output: runs/
"""


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with val/<class>/*.png, about five images for each of 24 scenes, and shapes.yaml; treat as read-only."""
    folder = tmp_path_factory.mktemp("shapes")
    write_imagefolder(folder, "val", SCENES)
    (folder / "shapes.yaml").write_text(EXPERIMENT.format(here=FOLDER), encoding="utf-8")
    return folder
