# SPDX-License-Identifier: MIT
"""Options of a tuning and its images: those that tune, and those kept apart that judge."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Sequence

from mpnet.data.dataset import Dataset, ImageRecord
from mpnet.detection.images import image
from mpnet.errors import ConfigError, DataError
from mpnet.formats.images.orientation import is_turned
from mpnet.formats.images.unlabelled import read_unlabelled
from mpnet.messages import few
from mpnet.trial.inputs import Inputs
from mpnet.trial.workbench import Workbench

LEAST_IMAGES = 8
"""With fewer, a part of them neither tunes nor judges."""


@dataclass(frozen=True)
class TuneOptions:
    """Options of a tuning.

    stages:  by name, in the order of STAGES; (): all that can run here.
    images:  the first so many of the images, None: all. apart: the share of them that judges and does not tune.
    minutes: most wall time of a stage that goes on until it is told to stop. seed: of everything random.
    steps:   most steps of a training, None: as many as the minutes have.
    """

    stages: tuple[str, ...] = ()
    images: int | None = 1000
    apart: float = 0.4
    minutes: float = 10.0
    steps: int | None = None
    seed: int = 0


@dataclass(frozen=True, eq=False)
class TuningImages:
    """Workbenches on the images that tune, and on those that judge. records: of all of them.

    reference, baseline: whose heads are the aim, and in which precision.
    aim: whose fp32 tensors layers are fitted to: those that were tuned, or what gives the same with other channels.
    """

    tuning: Workbench
    apart: Workbench
    records: tuple[ImageRecord, ...]
    reference: Workbench
    baseline: str
    aim: Workbench


def split_images(bench: Workbench, unlabelled: Path, options: TuneOptions) -> TuningImages:
    """Read the images and divide them. Raises: DataError for too few; ConfigError for some that the experiment evaluates."""
    data = bench.experiment.data
    assert data is not None
    records = read_unlabelled(unlabelled, is_turned(data.orientation, data.format), options.images)
    dataset = Dataset.of((), bench.dataset.categories, ()).with_unlabelled(records, options.images)
    judging = {record.sha256 for record in bench.dataset.images}
    shared = [Path(record.path).name for record in dataset.images if record.sha256 in judging]
    if shared:
        raise ConfigError(
            f"{unlabelled}: {len(shared)} of its {len(dataset.images)} images are among those that {bench.experiment.source} "
            f"evaluates, and what tunes cannot judge: {few(shared)}; tune on others"
        )
    if len(dataset.images) < LEAST_IMAGES:
        raise DataError(
            f"{unlabelled}: has {len(dataset.images)} images; tuning takes at least {LEAST_IMAGES}, better hundreds"
        )
    order = sorted(range(len(dataset.images)), key=lambda i: drawn_order(dataset.images[i].sha256, options.seed))
    count = min(max(2, math.ceil(options.apart * len(order))), len(order) - 4)
    inputs = Inputs(dataset.images, bench.network, bench.experiment.detection.fitted, image, workers=bench.threads)
    inputs.check()
    whole = replace(bench, dataset=dataset, inputs=inputs, parent=None)
    tuning, apart = _positions(whole, order[count:]), _positions(whole, order[:count])
    return TuningImages(tuning, apart, dataset.images, bench.reference, bench.experiment.baseline or "fp32", bench)


def drawn_order(digest: str, seed: int) -> str:
    """Return what images are put in order by: as good as random, and the same whatever their names are."""
    return hashlib.sha256(f"{seed} {digest}".encode()).hexdigest()


def _positions(bench: Workbench, positions: Sequence[int]) -> Workbench:
    ordered = sorted(positions)
    return replace(bench, dataset=bench.dataset.subset(ordered), inputs=bench.inputs.of(ordered))
