# SPDX-License-Identifier: MIT
"""An experiment with tuned weights beside the one whose weights they came from, as `mpnet tune` writes it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.documents.typed import as_json
from mpnet.formats.weights import read_weights, weights_content
from mpnet.model.weights import random_weights
from mpnet.tuning.record import TUNING_RECORD, TuningRecord
from tests.networks import write_experiment


def write_tuned(folder: Path) -> Path:
    """Write experiment.yaml and beside it tuned.yaml with tuned.weights and tuned.json; return the path of the first.

    The tuned weights have other biases: near enough to find much the same, far enough to tell.
    """
    path = write_experiment(folder)
    network = read_cfg(folder / "net.cfg")
    weights, other = read_weights(folder / "net.weights", network), random_weights(network, 9)
    layers = {
        index: replace(values, biases=values.biases + 0.01 * other.layers[index].biases + 0.01)
        for index, values in weights.layers.items()
    }
    tuned = folder / "tuned.weights"
    tuned.write_bytes(weights_content(replace(weights, layers=layers), network))
    write_record(folder, network.digest, weights.digest, read_weights(tuned, network).digest)
    text, own = path.read_text(encoding="utf-8"), "weights: net.weights"
    assert own in text
    tuned_text = text.replace(own, "weights: tuned.weights, parent: net.weights, tuning: tuned.json")
    (folder / "tuned.yaml").write_text(tuned_text, encoding="utf-8")
    return path


def write_record(folder: Path, cfg: str, parent: str, weights: str, images: tuple[str, ...] = ()) -> None:
    """Write tuned.json, the record of a tuning. cfg, parent, weights, images: digests."""
    record = TuningRecord(
        created="2026-11-28T12:00:00+00:00",
        mpnet="0",
        cfg=cfg,
        parent=parent,
        weights=weights,
        precision="q",
        measure="agreement_AP",
        options={},
        tuned_on=0,
        apart=0,
        agreement_before=90.0,
        agreement_after=95.0,
        gain=5.0,
        low=1.0,
        high=9.0,
        own_fp32=99.0,
        stages=(),
        images=images,
    )
    (folder / "tuned.json").write_text(json.dumps({**TUNING_RECORD.head, **as_json(record)}), encoding="utf-8")
