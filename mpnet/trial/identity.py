# SPDX-License-Identifier: MIT
"""The identity of a workbench's trials, and what is kept with a result: protocol, digests, calibration images, notes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterable

from mpnet.config.identity import ARITHMETIC_VERSION, TrialIdentity
from mpnet.detection.jpeg import Flaw
from mpnet.engine.assign import PrecisionPlan
from mpnet.export import Configuration
from mpnet.formats.cfg.read import read_cfg_bytes
from mpnet.formats.labels.dataset import MAX_COUNTED
from mpnet.json_values import Json, JsonObject
from mpnet.messages import few
from mpnet.model.precision import Precision
from mpnet.trial.run_result import CalibrationImages
from mpnet.trial.workbench import Workbench

_LARGE_CONFIDENCE = 0.1
"""Of detections: from here on AP misses enough of them to be compared with nobody else's."""
_SMALL_CONTRAST = 0.1


def protocol_of(bench: Workbench) -> dict[str, Json]:
    """Return the `protocol` of a result: everything between files and figures that somebody could choose otherwise."""
    data, network = bench.experiment.data, bench.network
    return {
        "dataset": data.format if data else "",
        "images": len(bench.dataset.images),
        **({"unlabelled": bench.dataset.unlabelled} if bench.dataset.unlabelled else {}),
        **({"condition": data.condition} if data and data.condition else {}),
        **({"orientation": "exif"} if any(image.orientation != 1 for image in bench.dataset.images) else {}),
        "resize": bench.experiment.detection.resize,
        **bench.kit.protocol(bench.experiment, network, bench.dataset),
        "batch_norm": bench.options.batch_norm,
        **({} if network.dialect == "darknet" == network.own_dialect else {"dialect": network.dialect}),
        "quantization": bench.quantization,
        "input": list(network.in_shape),
    }


def identity_of(bench: Workbench, precisions: PrecisionPlan, shared_with: Iterable[Precision] = ()) -> TrialIdentity:
    """Return what decides the result of this plan. shared_with: precisions of other plans that its parts shall do for."""
    # The cfg's own dialect is said by the cfg's digest.
    network = bench.network
    separate = {"quantization", "dataset"} | ({"dialect"} if network.dialect == network.own_dialect else set())
    return TrialIdentity(
        network.digest,
        bench.weights.digest,
        bench.dataset.digest,
        bench.calibration.digest,
        precisions.key,
        bench.quantization,
        {key: value for key, value in protocol_of(bench).items() if key not in separate},
        ARITHMETIC_VERSION,
        statistics=bench.statistics_digest([*precisions.of_weights, *shared_with]),
        parent=None if bench.parent is None else bench.parent.weights.digest,
    )


def calibration_images(bench: Workbench, precisions: Iterable[Precision]) -> CalibrationImages | None:
    """Return which images calibration took; None where nothing was calibrated."""
    if bench.experiment.data is None or (bench.calibration.digest is None and bench.statistics_digest(precisions) is None):
        return None
    section = bench.experiment.data.calibration
    images = None if section.images is None else os.path.abspath(section.images)
    return CalibrationImages(images, count=section.count, seed=section.seed)


def notes_of(bench: Workbench, precisions: Iterable[Precision]) -> list[str]:
    """Return what a reader of results of networks with layers of these precisions should know of the images, a line each."""
    notes = [*bench.dataset.notes]
    for flaw in Flaw:
        names = sorted({Path(path).name for path, image_flaw in bench.flawed if image_flaw is flaw})
        if names:
            notes.append(f"{len(names)} {flaw.value[1]}: {few(names)}")
    notes += _describe_measures(bench)
    images, fitted = bench.calibration.evaluated_images, "ranges"
    statistics = bench.calibration.statistics
    if not images and statistics is not None and bench.statistics_digest(precisions) is not None:
        images, fitted = statistics.evaluated_images, "weights"
    if images:
        notes.append(
            f"calibration also used {len(images)} of the evaluated images, so {fitted} fit these better than other "
            f"images: {few(images)}; name others in data.calibration.images"
        )
    return notes


def _describe_measures(bench: Workbench) -> list[str]:
    """Return what makes measures or ranges of a run other than they seem."""
    notes, confidence = [], bench.experiment.detection.confidence
    if bench.network.yolos and len(bench.dataset.box) and confidence > _LARGE_CONFIDENCE:
        notes.append(
            f"AP is of detections with a score above {confidence:g} (detection.confidence) alone and lower for it; other "
            "programs measure it from 0.001 or 0.005 on"
        )
    kept = bench.experiment.detection.max_detections
    if bench.network.yolos and len(bench.dataset.box) and kept is not None and kept < MAX_COUNTED:
        notes.append(
            f"AP is of the best {kept} detections of each image (detection.max_detections) alone; "
            f"COCO's is of {MAX_COUNTED} of each class"
        )
    values = bench.calibration.image_values
    if values is not None and values[1] - values[0] < _SMALL_CONTRAST:
        notes.append(
            f"the calibration images have values from {values[0]:.2f} to {values[1]:.2f} alone (of 0 to 1), so that ranges fit "
            "no others; name images like the evaluated ones in data.calibration.images"
        )
    return notes


def configuration_of(bench: Workbench, precisions: PrecisionPlan, document: JsonObject | None = None) -> Configuration:
    """Return these precisions with everything else that decides a result. document: what else is known of it."""
    digests = {name: digest for name, digest in identity_of(bench, precisions).digests().items() if digest is not None}
    described = {
        "name": bench.experiment.name,
        "protocol": protocol_of(bench),
        "digests": digests,
        "sources": dict(bench.sources),
        "dataset": {"category_ids": [category.id for category in bench.dataset.categories]},
        **(document or {}),
    }
    return Configuration.from_prepared(
        bench.prepared,
        precisions,
        bench.options,
        content=read_cfg_bytes(bench.experiment.model.cfg),
        names=bench.names or bench.dataset.names,
        document=described,
    )
