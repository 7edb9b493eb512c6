# SPDX-License-Identifier: MIT
"""The objects behind a finished result: its data set, its detections and, when needed, the network itself.

A result names its sources by path and digest. Files that moved or changed are not used: the digest must be the same.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.experiment import MAX_IMAGES, Experiment
from mpnet.data.dataset import Dataset, ImageRecord
from mpnet.detection.conditions import condition
from mpnet.detection.images import image
from mpnet.errors import DataError, MpnetError, StoreError
from mpnet.formats.documents.experiment import parse_experiment
from mpnet.formats.documents.typed import as_json
from mpnet.formats.labels.dataset import load_dataset
from mpnet.formats.labels.yolo import read_names
from mpnet.json_values import Json, JsonObject
from mpnet.model.precision import PRECISIONS
from mpnet.trial.experiment import open_workbench
from mpnet.trial.run_result import Provenance, count_images
from mpnet.trial.workbench import Workbench


def open_dataset(provenance: Provenance) -> Dataset:
    """Open the data set that a result was measured on. Raises: DataError when it is not there any more or has changed."""
    sources, protocol = _sources(provenance), provenance.protocol
    kind = str(protocol.get("dataset", ""))
    names = read_names(Path(sources["names"])) if sources.get("names") else None
    try:
        dataset = load_dataset(
            kind,
            sources.get("images", ""),
            labels=sources.get("labels"),
            annotations=sources.get("annotations"),
            names=names,
            limit=_labelled(protocol) or None,
            unlabelled=sources.get("unlabelled"),
            unlabelled_limit=_unlabelled(protocol) or MAX_IMAGES,
            orientation=_orientation(protocol),
        )
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror}); the data set has moved") from None
    return _unchanged(dataset, provenance)


def image_loader(protocol: JsonObject) -> Callable[[ImageRecord], NDArray[np.uint8]]:
    """Return a function from a record to the image, uint8 (h, w, 3), as a result's network saw it, condition included."""
    text = protocol.get("condition")
    if not text:
        return image
    image_condition = condition(str(text), "protocol.condition")
    return lambda record: image_condition.apply(image(record), record.sha256)


def _orientation(protocol: JsonObject) -> str:
    """Return how images were turned; what says nothing had none that were."""
    return str(protocol.get("orientation", "stored"))


def _labelled(protocol: JsonObject) -> int:
    """Count the labelled images that a result was measured on."""
    return count_images(protocol) - _unlabelled(protocol)


def _unlabelled(protocol: JsonObject) -> int:
    """Count the images without labels that a result was measured on."""
    return count_images(protocol, "unlabelled")


def experiment_of(
    provenance: Provenance, precision: JsonObject | None = None, output: Path | None = None, overrides: Sequence[str] = ()
) -> Experiment:
    """Make an experiment that measures what a result has measured, from its protocol and sources.

    precision: its `precision` section; output: folder of results, None: the default. overrides: KEY=VALUE over all of it.
    """
    sources, protocol = _sources(provenance), provenance.protocol
    model = {key: sources[key] for key in ("cfg", "weights", "names", "parent", "tuning") if sources.get(key)}
    data = {key: sources[key] for key in ("images", "labels", "annotations", "unlabelled") if sources.get(key)}
    tree: dict[str, Json] = {
        "name": provenance.name,
        "model": {**model, "batch_norm": protocol["batch_norm"], "dialect": protocol.get("dialect", "auto")},
        "data": {
            **({"format": protocol["dataset"], "limit": _labelled(protocol)} if protocol["dataset"] else {}),
            **data,
            **({"unlabelled_limit": _unlabelled(protocol)} if _unlabelled(protocol) else {}),
            "orientation": _orientation(protocol),
            **({"condition": protocol["condition"]} if protocol.get("condition") else {}),
            **({"calibration": as_json(provenance.calibration)} if provenance.calibration else {}),
        },
        **({"precision": precision} if precision else {}),
        **({"output": str(output)} if output else {}),
        "detection": {
            key: protocol[key]
            for key in ("resize", "confidence", "nms", "nms_kind", "max_detections")
            if protocol.get(key) is not None
        },
    }
    if protocol.get("quantization"):
        tree["quantization"] = protocol["quantization"]
    # JSON is YAML, and quotes what a path may contain.
    return parse_experiment(json.dumps(tree), overrides, source=f"{provenance.name}: its own record")


def reopen(provenance: Provenance, output: Path | None = None, unlabelled: Path | None = None) -> Workbench:
    """Open the network, weights and images behind a result, ready to run again.

    output: folder of its results, where its calibrated ranges are kept as well; None: the default.
    unlabelled: images without labels, in place of those that it was measured with.
    Raises: MpnetError, one line, when a file is gone or has changed.
    """
    new_images = () if unlabelled is None else (f"data.unlabelled={json.dumps(str(unlabelled.absolute()))}",)
    overrides = (*new_images, f"data.unlabelled_limit={MAX_IMAGES}") if new_images else ()
    bench = open_workbench(experiment_of(provenance, output=output, overrides=overrides))
    digests = provenance.digests
    if unlabelled is None:
        data = bench.dataset.digest
    elif _sources(provenance).get("unlabelled"):
        data = open_dataset(provenance).digest
    else:
        data = _unchanged(bench.dataset.without_unlabelled(), provenance).digest
    present = {"cfg": bench.network.digest, "weights": bench.weights.digest, "data": data}
    for name, digest in present.items():
        if digests.get(name) != digest:
            source = _sources(provenance).get(name, name)
            raise StoreError(f"{source}: has changed since this was measured; measure again")
    if new_images and not _is_calibrated_as_measured(bench, provenance):
        # Calibration images were drawn from the images that it was measured with, of which there are more now.
        calibrated = open_workbench(experiment_of(provenance, output=output))
        wider = {name: getattr(bench, name) for name in ("experiment", "dataset", "inputs", "sources", "flawed")}
        bench = replace(calibrated, **wider)
    if not _is_calibrated_as_measured(bench, provenance):
        raise StoreError(f"{provenance.name}: was calibrated on other images than its record says; name its experiment file")
    return bench


def _is_calibrated_as_measured(bench: Workbench, provenance: Provenance) -> bool:
    """Return whether ranges and weights come of the images that a result's come of."""
    digests = provenance.digests
    statistics = digests.get("lessons")
    return digests.get("calibration") in (None, bench.calibration.digest) and (
        statistics is None or statistics == bench.statistics_digest(PRECISIONS.values())
    )


def _unchanged(dataset: Dataset, provenance: Provenance) -> Dataset:
    """Return the data set itself. Raises: DataError when it is not the one that a result was measured on."""
    if dataset.digest != provenance.digests.get("data"):
        raise DataError(f"{_sources(provenance).get('images', '?')}: images or labels have changed since this was measured")
    return dataset


def reason(error: MpnetError) -> str:
    """Return an error's message for a page that says what it lacks."""
    return " ".join(str(error).split())


def _sources(provenance: Provenance) -> Mapping[str, str]:
    if not provenance.sources:
        raise DataError("the result does not name its files; measure it again with this version of mpnet")
    return provenance.sources
