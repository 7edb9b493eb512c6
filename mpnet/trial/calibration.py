# SPDX-License-Identifier: MIT
"""Calibration for an experiment: its images, its ranges (kept as text, found again by digest), its channel means."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.experiment import CalibrationSection
from mpnet.config.identity import digest_of
from mpnet.data.dataset import Dataset
from mpnet.detection.images import image
from mpnet.engine.calibrate import calibrate, range_requests
from mpnet.engine.observe import channel_factors, channel_means
from mpnet.engine.options import resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.engine.prepared_cache import equalisation_digest
from mpnet.errors import DataError
from mpnet.formats.documents.ranges import ranges_json, read_ranges, write_ranges
from mpnet.formats.files.cache import open_cache
from mpnet.formats.images.orientation import is_turned
from mpnet.formats.images.read import SUFFIXES, probe
from mpnet.formats.labels.yolo import list_files
from mpnet.json_values import Json
from mpnet.model.quantization import QuantizationOptions
from mpnet.model.ranges import IMAGE, CalibratedRanges
from mpnet.trial.image_statistics import CalibrationImages, ImageStatistics
from mpnet.trial.inputs import Inputs
from mpnet.trial.setup import CalibratedOptions, Calibration
from mpnet.trial.workbench import Workbench


def under_quantization(
    bench: Workbench, options: QuantizationOptions, layers: Sequence[tuple[str, QuantizationOptions]] = ()
) -> Workbench:
    """Return the workbench with other quantisation options, calibrated if they ask for that. layers: by selector, over these.

    Raises: as `resolve_options` and `calibrated`.
    """
    resolved = resolve_options(bench.network, options, layers, batch_norm=bench.options.batch_norm)
    return calibrated(replace(bench, options=resolved, calibration=Calibration()))


def calibrated(bench: Workbench) -> Workbench:
    """Return the workbench with what its options need of calibration images.

    These are factors of channels for equalisation by activations, ranges of the network that it gives, and channel means for
    bias correction; and statistics of layers with weights of fewer than eight bits, which are computed when such a layer is
    prepared.

    Ranges are written to `output/calibration/<digest>.json`, and taken from there when they were found before.
    Raises: ConfigError, DataError, FormatError, EngineError, StoreError.
    """
    images: _Images | None = None
    if bench.options.by_activations:
        images = _Images(bench)
        plain = Prepared(bench.network, bench.weights, bench.kernels, batch_norm=bench.options.batch_norm, cache=open_cache())
        factors = channel_factors(plain, images.batches(), bench.threads)
        bench = replace(bench, options=replace(bench.options, channel_factors=factors))
    options = bench.options
    requests = range_requests(bench.network, options)
    corrected = any(options.of(layer.index).corrected for layer in bench.network.convolutions)
    measured = replace(bench, calibration=Calibration(statistics=_statistics(bench)))
    if not requests and not corrected and images is None:
        return measured
    images = images or _Images(bench)
    prepared = measured.prepared
    digests = {
        "network": bench.network.digest,
        "weights": bench.weights.digest,
        "data": images.digest,
        "options": digest_of(
            {
                "batch_norm": options.batch_norm,
                "equalise": equalisation_digest(options.equalise),
                "resize": bench.experiment.detection.resize,
                "tensors": {str(tensor): [str(method), repr(scheme)] for tensor, (method, scheme) in requests.items()},
            }
        ),
    }
    digested: dict[str, Json] = {"pictures": digests["data"], "options": digests["options"]}
    ranges: CalibratedRanges | None = None
    if requests:
        path = ranges_path(bench, digests)
        if path.exists():
            ranges = read_ranges(path)
            ranges.check_made_for(digests)
        else:
            ranges = calibrate(prepared, images.batches(), requests, digests, bench.threads)
            write_ranges(path, ranges)
        options = replace(options, ranges={**options.ranges, **ranges.by_tensor()})
        digested["ranges"] = hashlib.sha256(ranges_json(ranges).encode()).hexdigest()
    means = channel_means(prepared, images.batches(), bench.threads) if corrected else {}
    image_range = next((found for found in ranges.tensors if found.tensor == IMAGE), None) if ranges is not None else None
    calibration = replace(
        measured.calibration,
        digest=digest_of(digested),
        channel_means=means,
        evaluated_images=images.among(bench.dataset),
        image_values=None if image_range is None else (image_range.seen_minimum, image_range.seen_maximum),
    )
    return replace(measured, options=options, calibration=calibration)


def _statistics(bench: Workbench) -> ImageStatistics:
    options, cache = bench.options, open_cache()
    prepared = CalibratedOptions(bench.weights, options).prepare(bench.network, bench.kernels)

    def images() -> CalibrationImages:
        chosen = _Images(bench)
        return CalibrationImages(chosen.digest, chosen.among(bench.dataset), chosen.batches)

    decides = [
        bench.network.digest,
        bench.weights.digest,
        options.batch_norm,
        equalisation_digest(options.equalise),
        bench.network.dialect,
        bench.experiment.detection.fitted,
    ]
    return ImageStatistics(images, prepared, decides, bench.threads, cache)


def ranges_path(bench: Workbench, digests: dict[str, str]) -> Path:
    """Return where the ranges of these digests are kept."""
    return bench.experiment.output / "calibration" / f"{digest_of(digests)[:16]}.json"


class _Images:
    """The calibration images of an experiment, chosen and hashed."""

    def __init__(self, bench: Workbench) -> None:
        experiment = bench.experiment
        section = experiment.data.calibration if experiment.data is not None else CalibrationSection()
        if section.images is None:
            records = [bench.dataset.images[i] for i in _drawn(len(bench.dataset.images), section)]
        else:
            files = list_files(section.images, SUFFIXES, "images", "data.calibration.images")
            if not files:
                suffixes = ", ".join(SUFFIXES)
                raise DataError(f"{section.images}: holds no image to calibrate on (known suffixes: {suffixes})")
            data = experiment.data
            turns = data is not None and is_turned(data.orientation, data.format)
            records = [probe(files[i], i, turns) for i in _drawn(len(files), section)]
        if not records:
            raise DataError("calibration: the data set holds no image; name a folder in data.calibration.images")
        self._inputs = Inputs(records, bench.network, experiment.detection.fitted, image, workers=bench.threads)
        self._batch = experiment.runtime.batch
        self.digest = digest_of([record.content for record in records])

    def among(self, dataset: Dataset) -> tuple[str, ...]:
        """Return the names of those that are images of a data set as well, by what is in the files."""
        evaluated = {record.sha256 for record in dataset.images}
        return tuple(Path(record.path).name for record in self._inputs.records if record.sha256 in evaluated)

    def batches(self) -> Iterator[NDArray[np.float32]]:
        """Return the network inputs, a few images at a time."""
        return (batch.x for batch in self._inputs.batches(self._batch))


def _drawn(available: int, section: CalibrationSection) -> list[int]:
    """Return the positions of the images: all when there are no more than wanted, else drawn with the seed, in order."""
    if available <= section.count:
        return list(range(available))
    positions = np.random.Generator(np.random.PCG64(section.seed)).permutation(available)[: section.count]
    return sorted(positions.tolist())
