# SPDX-License-Identifier: MIT
"""A network's task fills in what an experiment leaves open, and refuses what is another task's."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.errors import ConfigError
from mpnet.formats.cfg.read import parse_cfg
from mpnet.formats.documents.experiment import read_experiment
from mpnet.model.task import CLASSIFICATION, DETECTION
from mpnet.trial.task import for_task, kit_of, task_of
from tests.networks import tiny_cfg

HEADLESS = "[net]\nwidth=8\nheight=8\nchannels=3\n\n[convolutional]\nfilters=4\nsize=3\nstride=1\npad=1\nactivation=linear\n"


def test_a_network_with_yolo_layers_is_a_detector() -> None:
    assert task_of(parse_cfg(tiny_cfg(), "tiny.cfg")) is DETECTION
    for task in (DETECTION, CLASSIFICATION):
        assert kit_of(task).task is task


def test_a_network_that_is_for_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no detection head such as"):
        task_of(parse_cfg(HEADLESS, "plain.cfg"))


def test_what_an_experiment_leaves_open_is_the_tasks(experiment: Path) -> None:
    network = parse_cfg(tiny_cfg(), "tiny.cfg")
    filled = for_task(read_experiment(experiment, ["sweep={strategy: greedy}"]), network)
    assert filled.detection.resize == "stretch"
    assert filled.sweep is not None
    assert filled.sweep.objectives == ("AP", "bit_operations")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data={format: imagefolder, images: images}"], "data.format is 'imagefolder', but tiny.cfg is a detector; use yolo"),
        (["sweep={strategy: greedy, objectives: [top1]}"], "sweep.objectives: top1 is not measured of a detector"),
        (["sweep={strategy: greedy, constraints: {top1_drop: 1}}"], "sweep.constraints: top1 is not measured of a detector"),
    ],
)
def test_what_belongs_to_another_task_is_refused(experiment: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        for_task(read_experiment(experiment, overrides), parse_cfg(tiny_cfg(), "tiny.cfg"))
