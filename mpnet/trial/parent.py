# SPDX-License-Identifier: MIT
"""Tuned weights in an experiment: the parent whose baseline is the reference of agreement, and images that may not judge."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Iterable, Mapping

from mpnet.config.experiment import QuantizationSection
from mpnet.data.dataset import ImageRecord
from mpnet.errors import ConfigError
from mpnet.formats.documents.experiment import read_experiment
from mpnet.formats.files.cache import open_cache
from mpnet.formats.weights import open_weights
from mpnet.messages import few
from mpnet.model.precision import PRECISIONS
from mpnet.model.weights import Weights
from mpnet.trial.calibration import calibrated
from mpnet.trial.workbench import Workbench
from mpnet.tuning.record import TuningRecord, read_tuning


def with_parent(bench: Workbench) -> Workbench:
    """Return the workbench with its parent, where the experiment names one, once its record and its images are found to fit.

    Raises: ConfigError for a record of other weights, and for images that tuned the weights; FormatError for the parent's file.
    """
    model, source = bench.experiment.model, bench.experiment.source
    if model.tuning is not None and model.parent is None:
        raise ConfigError(f"{source}: model.tuning is the record of tuned weights; name their parent in model.parent as well")
    if model.parent is None:
        return bench
    weights = open_weights(model.parent, bench.network, open_cache())
    if model.tuning is not None:
        record = read_tuning(model.tuning)
        _check_record(record, bench, weights.digest, model.tuning)
        _check_images(record.images, bench.dataset.images, source, model.tuning)
    experiment = replace(bench.experiment, model=replace(model, weights=model.parent, parent=None, tuning=None))
    sources = {name: path for name, path in bench.sources.items() if name not in ("parent", "tuning")}
    parent = replace(bench, experiment=experiment, weights=weights, sources={**sources, "weights": bench.sources["parent"]})
    baseline = experiment.baseline
    # An fp32 network needs nothing of calibration images but the factors of channels.
    if parent.options.by_activations or (baseline is not None and PRECISIONS[baseline].carries_scale):
        parent = calibrated(parent)
    return replace(bench, parent=parent)


@dataclass(frozen=True, eq=False)
class TunedWeights:
    """Weights that were tuned for a network, with the options that they are to run under.

    sources: paths of the weights, of their parent and of the record, by what they are.
    """

    weights: Weights
    quantization: QuantizationSection
    sources: Mapping[str, str]


def open_tuned(bench: Workbench, path: Path) -> TunedWeights:
    """Open what `mpnet tune` made of a workbench's weights. path: of the experiment that it wrote.

    Raises: ConfigError for tuned weights of others, and for images of the workbench that tuned them; FormatError.
    """
    experiment = read_experiment(path)
    model = experiment.model
    if model.tuning is None:
        raise ConfigError(f"{path}: names no record in model.tuning; name an experiment that `mpnet tune` wrote")
    record, parent = read_tuning(model.tuning), bench.reference.weights.digest
    if record.parent != parent:
        raise ConfigError(
            f"{path}: its weights were tuned from others than {bench.reference.experiment.model.weights}, by their digest; "
            "tune those"
        )
    weights = open_weights(model.weights, bench.network, open_cache())
    _check_record(record, replace(bench, experiment=experiment, weights=weights), parent, model.tuning)
    _check_images(record.images, bench.dataset.images, bench.experiment.source, model.tuning)
    own = bench.sources
    sources = {
        "weights": os.path.abspath(model.weights),
        "parent": own.get("parent", own["weights"]),
        "tuning": os.path.abspath(model.tuning),
    }
    return TunedWeights(weights, experiment.quantization, sources)


def _check_record(record: TuningRecord, bench: Workbench, parent: str, path: Path) -> None:
    model, source = bench.experiment.model, bench.experiment.source
    for what, file, recorded, present in (
        ("weights", model.weights, record.weights, bench.weights.digest),
        ("parent", model.parent, record.parent, parent),
        ("cfg", model.cfg, record.cfg, bench.network.digest),
    ):
        if recorded != present:
            raise ConfigError(
                f"{source}: model.{what} is {file}, but {path} records another file (its digest differs); name the "
                "files of one tuning, or tune again"
            )


def _check_images(tuned_on: Iterable[str], images: Iterable[ImageRecord], source: str, path: Path) -> None:
    digests = set(tuned_on)
    names = [Path(image.path).name for image in images if image.sha256 in digests]
    if names:
        raise ConfigError(
            f"{source}: {len(names)} of the images took part in tuning these weights ({path}), so they cannot judge them: "
            f"{few(names)}; evaluate on others"
        )
