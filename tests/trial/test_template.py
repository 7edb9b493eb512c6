# SPDX-License-Identifier: MIT
"""The experiment file that `mpnet init` writes: every key that it names fits, whatever is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.errors import ConfigError
from mpnet.formats.documents.experiment import parse_experiment
from mpnet.trial.template import InitFiles, experiment_template
from tests.networks import write_experiment


@pytest.fixture
def init_files(tmp_path: Path) -> InitFiles:
    """Return the files of the tiny network."""
    write_experiment(tmp_path)
    cfg = next(tmp_path.glob("*.cfg"))
    return InitFiles(cfg, cfg.with_suffix(".weights"), tmp_path / "images", cfg.with_suffix(".names"))


def test_the_text_reads_as_the_experiment_that_was_asked_for(init_files: InitFiles, tmp_path: Path) -> None:
    target = tmp_path / "experiments" / "new.yaml"
    text, dataset, network = experiment_template(init_files, target, "new")
    experiment = parse_experiment(text, base=target.parent)
    assert experiment.name == "new"
    assert experiment.data is not None
    assert experiment.data.images is not None
    assert experiment.model.cfg.resolve() == init_files.cfg.resolve()
    assert experiment.data.images.resolve() == init_files.images.resolve()  # type: ignore[union-attr]
    assert experiment.precision.default == "int8"
    assert len(dataset.images) == 5
    assert network.source == str(init_files.cfg)


def test_few_images_are_held_out(init_files: InitFiles, tmp_path: Path) -> None:
    text, _, _ = experiment_template(init_files, tmp_path / "new.yaml", "new")
    assert "# Fewer than 200 images: 60 % of them only report and do not choose." in text


def test_images_without_labels_are_searched_by_agreement(init_files: InitFiles, tmp_path: Path) -> None:
    unlabelled = InitFiles(init_files.cfg, init_files.weights, None, init_files.names, unlabelled=init_files.images)
    text, dataset, _ = experiment_template(unlabelled, tmp_path / "new.yaml", "new")
    assert dataset.labelled_count == 0
    assert "objectives: [agreement_AP, bit_operations]" in text


def test_labels_that_are_nowhere_are_asked_for(init_files: InitFiles, tmp_path: Path) -> None:
    (tmp_path / "labels").rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="name them with --labels"):
        experiment_template(init_files, tmp_path / "new.yaml", "new")
