# SPDX-License-Identifier: MIT
"""From a target file to a recipe: a sweep of what `mpnet init --target` writes tries nothing that the target does not have."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.documents.experiment import read_experiment
from mpnet.formats.documents.target_file import bundled_target, target_names
from mpnet.model.precision import BY_CODE
from mpnet.trial.defaults import runnable_precisions, tied_layers
from tests.cli.conftest import Mpnet, document_of
from tests.networks import DEPTHWISE_CFG, small_cfg, write_experiment

DEPTHWISE = DEPTHWISE_CFG.decode().replace("mask=0,1\nnum=2\nclasses=2", "mask=0,1\nnum=2\nclasses=3").replace("14", "16")


@pytest.fixture(params=[small_cfg(), DEPTHWISE], ids=["routes", "depthwise"])
def network_folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write_experiment(tmp_path, request.param)
    return tmp_path


def init(mpnet: Mpnet, target: str, cwd: Path) -> None:
    files = ("--cfg", "net.cfg", "--weights", "net.weights", "--names", "net.names", "--images", "images")
    process = mpnet("init", *files, "--target", target, "-o", "chip.yaml", cwd=cwd)
    assert process.returncode == 0, process.stderr


def swept_keys(mpnet: Mpnet, cwd: Path) -> list[str]:
    """Return the keys of all trials but the baseline's."""
    document = document_of(mpnet("sweep", "chip.yaml", "--workers", 1, "-q", "--json", cwd=cwd))
    assert mpnet("export", document["store"], "-o", "trials.csv", cwd=cwd).returncode == 0
    with (cwd / "trials.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [row["precision"] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("name", target_names())
def test_a_sweep_obeys_its_target_file(mpnet: Mpnet, network_folder: Path, name: str) -> None:
    init(mpnet, name, network_folder)
    network, target = read_cfg(network_folder / "net.cfg"), bundled_target(name)
    layers, runnable = [layer.index for layer in network.convolutions], runnable_precisions(network, target)
    keys = [key for key in swept_keys(mpnet, network_folder) if set(key) != {"f"}]
    assert len(keys) > 2
    for key in keys:
        precisions = {index: BY_CODE[code].name for index, code in zip(layers, key, strict=True)}
        assert all(precisions[index] in names for index, names in runnable.items())
        assert all(len({precisions[index] for index in group}) == 1 for group in tied_layers(network, target))
    assert len({*keys}) == len(keys)
    options = read_experiment(network_folder / "chip.yaml").quantization.options
    assert options.overlaid(target.quantization) == options
