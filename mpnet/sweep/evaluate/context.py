# SPDX-License-Identifier: MIT
"""Everything that a worker needs to evaluate configurations, in a form that can be sent to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.data.dataset import Dataset
from mpnet.errors import StoreError
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import Precision
from mpnet.trial.kit import Decoder, Predictions
from mpnet.trial.setup import CalibratedOptions

Array = str | NDArray[np.float32]
"""float32 values, or the path of an .npy file with them that all workers of this machine can map."""


def values_of(array: Array) -> NDArray[np.float32]:
    """Return the values; a file is mapped, not read, so that all processes share its memory."""
    if not isinstance(array, str):
        return array
    try:
        mapped: NDArray[np.float32] = np.load(array, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise StoreError(f"{array}: cannot be read ({error}); run the sweep again") from None
    return mapped


@dataclass(frozen=True, eq=False)
class Baseline:
    """The run that others are compared with. predictions: what it says of all images; outputs: its output tensors, all images.

    decoded_bytes: what the fullest of them takes decoded.
    """

    key: str
    predictions: Predictions
    outputs: tuple[Array, ...]
    decoded_bytes: int


@dataclass(frozen=True, eq=False)
class SweepContext:
    """All that a worker needs to evaluate configurations of one sweep.

    options:  one per option set of the space, each with its weights.
    unweighted: layers without weights that have a precision of their own.
    images: (n, h, w, c), ready for the network. geometry: float32 (n, 4), where each image lies in its input.
    select, report: positions of the images that select, and of those that only report.
    decoder:  from output tensors to what a configuration finds.
    requested_measures: of the measures that take time, those that are asked for.
    isa, threads, group: name of the kernel table, threads of each worker, images in one forward pass.
    known_keys: of each option set, the configuration by whose pass workers are checked; none: no worker is.
    order:    positions in `select`, in which races look at these images, None: as `race.Race`.
    screening: positions of the few images on which configurations are screened.
    step_ms:  predicted milliseconds of a step by its signature (see latency), empty: no prediction.
    device, falls_back: as `mpnet.engine.devices.open_kernels` takes them.
    """

    network: NetworkSpec
    options: tuple[CalibratedOptions, ...]
    unweighted: Mapping[int, Precision]
    decoder: Decoder[Predictions]
    dataset: Dataset
    images: Array
    geometry: NDArray[np.float32]
    select: NDArray[np.intp]
    report: NDArray[np.intp]
    requested_measures: tuple[str, ...]
    isa: str
    threads: int
    group: int
    baseline: Baseline | None = None
    step_ms: Mapping[str, float] | None = None
    known_keys: tuple[str, ...] = ()
    order: NDArray[np.intp] | None = None
    screening: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    device: str = "auto"
    falls_back: bool = False
