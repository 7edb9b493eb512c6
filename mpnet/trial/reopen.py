# SPDX-License-Identifier: MIT
"""What stands behind a finished result: its data set, its detections and, when needed, the network itself.

A result names its sources by path and digest. Files that moved or changed are not used: the digest must be the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.experiment import Experiment
from mpnet.data.dataset import Dataset, ImageRecord
from mpnet.detection.conditions import condition
from mpnet.detection.images import image
from mpnet.errors import DataError, MpnetError, StoreError
from mpnet.evaluation.dataset import load_dataset
from mpnet.formats.documents.experiment import parse_experiment
from mpnet.formats.labels.yolo import read_names
from mpnet.model.precision import PRECISIONS
from mpnet.trial.experiment import open_workbench
from mpnet.trial.workbench import Workbench


def open_dataset(document: Mapping[str, Any]) -> Dataset:
    """The data set that a result was measured on. Raises: DataError when it is not there any more or has changed."""
    sources, protocol = _sources(document), document["protocol"]
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
        )
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror}); the data set has moved") from None
    return _unchanged(dataset, document)


def image_loader(document: Mapping[str, Any]) -> Callable[[ImageRecord], NDArray[np.uint8]]:
    """From a record to the image, uint8 (h, w, 3), as the network of a result saw it: under its condition, if it had one."""
    text = document["protocol"].get("condition")
    if not text:
        return image
    under = condition(text, "protocol.condition")
    return lambda record: under.apply(image(record), record.sha256)


def _labelled(protocol: Mapping[str, Any]) -> int:
    """How many labelled images a result was measured on."""
    return int(protocol.get("images") or 0) - int(protocol.get("unlabelled") or 0)


def experiment_of(
    document: Mapping[str, Any],
    precision: Mapping[str, Any] | None = None,
    output: Path | None = None,
    overrides: Sequence[str] = (),
) -> Experiment:
    """An experiment that measures what a result has measured, made from its protocol and sources.

    precision: its `precision` section; output: folder of results, None: the default. overrides: KEY=VALUE over all of it.
    """
    sources, protocol = _sources(document), document["protocol"]
    model = {key: sources[key] for key in ("cfg", "weights", "names") if sources.get(key)}
    data = {key: sources[key] for key in ("images", "labels", "annotations", "unlabelled") if sources.get(key)}
    tree: dict[str, Any] = {
        "name": document["name"],
        "model": {**model, "batch_norm": protocol["batch_norm"], "dialect": protocol.get("dialect", "auto")},
        "data": {
            **({"format": protocol["dataset"], "limit": _labelled(protocol)} if protocol["dataset"] else {}),
            **data,
            **({"condition": protocol["condition"]} if protocol.get("condition") else {}),
            **({"calibration": document["calibration"]} if document.get("calibration") else {}),
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
    return parse_experiment(json.dumps(tree), overrides, source=f"{document['name']}: its own record")


def reopen(document: Mapping[str, Any], output: Path | None = None, unlabelled: Path | None = None) -> Workbench:
    """The network, weights and images behind a result, ready to run again.

    output: folder of its results, where its calibrated ranges are kept as well; None: the default.
    unlabelled: images without labels, in place of those that it was measured with.
    Raises: MpnetError, one line, when a file is gone or has changed.
    """
    others = () if unlabelled is None else (f"data.unlabelled={json.dumps(str(unlabelled.absolute()))}",)
    bench = open_workbench(experiment_of(document, output=output, overrides=others))
    digests = document["digests"]
    if unlabelled is None:
        data = bench.dataset.digest
    elif _sources(document).get("unlabelled"):
        data = open_dataset(document).digest
    else:
        data = _unchanged(bench.dataset.without_unlabelled(), document).digest
    held = {"cfg": bench.network.digest, "weights": bench.weights.digest, "data": data}
    for name, digest in held.items():
        if digests.get(name) != digest:
            source = _sources(document).get(name, name)
            raise StoreError(f"{source}: has changed since this was measured; measure again")
    statistics = digests.get("lessons")
    if digests.get("calibration") not in (None, bench.calibration) or (
        statistics is not None and statistics != bench.statistics_digest(PRECISIONS.values())
    ):
        raise StoreError(f"{document['name']}: was calibrated on other images than its record says; name its experiment file")
    return bench


def _unchanged(dataset: Dataset, document: Mapping[str, Any]) -> Dataset:
    """The data set itself. Raises: DataError when it is not the one that a result was measured on."""
    if dataset.digest != document["digests"].get("data"):
        raise DataError(f"{_sources(document).get('images', '?')}: images or labels have changed since this was measured")
    return dataset


def reason(error: MpnetError) -> str:
    """An error's message for a page that says what it lacks."""
    return " ".join(str(error).split())


def _sources(document: Mapping[str, Any]) -> Mapping[str, str]:
    sources = document.get("sources")
    if not isinstance(sources, dict) or not sources:
        raise DataError("the result does not name its files; measure it again with this version of mpnet")
    return sources
