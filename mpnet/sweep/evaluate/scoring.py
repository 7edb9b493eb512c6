# SPDX-License-Identifier: MIT
"""The figures of a configuration, as `mpnet run` measures them, on one or two parts of the data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import HELD_OUT, MAX_SQNR_DB
from mpnet.data.dataset import Dataset
from mpnet.quantization.measure import decibels
from mpnet.trial.kit import Kit, Meter, Predictions


@dataclass(frozen=True, eq=False)
class Noise:
    """Signal and noise of one head tensor against the baseline's: float64 (images,) sums of squares each."""

    signal: NDArray[np.float64]
    noise: NDArray[np.float64]


def heads_sqnr_db(heads: Sequence[Noise], positions: NDArray[np.intp]) -> float:
    """Return the signal-to-noise ratio over heads in dB: each head counts by its own ratio, so none drowns another.

    -10 log10 of the mean over heads of noise / signal, over the images at `positions`; at most MAX_SQNR_DB.
    """
    ratios = []
    for head in heads:
        signal, noise = float(head.signal[positions].sum()), float(head.noise[positions].sum())
        ratios.append(noise / signal if signal else float(noise > 0))
    mean = sum(ratios) / len(ratios)
    return min(MAX_SQNR_DB, -decibels(mean)) if mean > 0 else MAX_SQNR_DB


def split_positions(ids: Sequence[str], share: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return (positions that select, positions that only report): which is which follows from each image's identity.

    ids: one text per image, such as the digest of its bytes. share: of the images that only report; both parts get
    at least one of two images or more. Independent of the order of the images.
    """
    if share <= 0 or len(ids) < 2:
        return np.arange(len(ids)), np.zeros(0, dtype=np.intp)
    order = sorted(range(len(ids)), key=lambda i: (hashlib.sha256(f"{seed}:{ids[i]}".encode()).hexdigest(), ids[i]))
    held_out_count = min(max(1, round(share * len(ids))), len(ids) - 1)
    return np.array(sorted(order[held_out_count:]), dtype=np.intp), np.array(sorted(order[:held_out_count]), dtype=np.intp)


@dataclass(frozen=True, eq=False)
class _Share:
    prefix: str
    positions: NDArray[np.intp]
    meter: Meter[Any]


class Scorer:
    """Figures of any number of configurations on one data set.

    kit: of the network's task. baseline: predictions that agreement is measured against, None: no agreement.
    select, report: positions of the images that select and that only report; without the latter all select.
    requested_measures: of the measures that take time, those that are asked for.
    """

    def __init__(
        self,
        dataset: Dataset,
        kit: Kit[Any],
        *,
        baseline: Predictions | None = None,
        select: NDArray[np.intp] | None = None,
        report: NDArray[np.intp] | None = None,
        requested_measures: Collection[str] = (),
    ) -> None:
        self._kit, self._requested_measures = kit, requested_measures
        all_positions = np.arange(len(dataset.images))
        selecting = all_positions if select is None else select
        self._selects_all = len(selecting) == len(all_positions)
        self._shares = [self._share("", dataset, selecting, baseline)]
        if report is not None and len(report):
            self._shares.append(self._share(HELD_OUT, dataset, report, baseline))

    def _share(self, prefix: str, dataset: Dataset, positions: NDArray[np.intp], baseline: Predictions | None) -> _Share:
        data = dataset if len(positions) == len(dataset.images) else dataset.subset(positions.tolist())
        if baseline is not None and data is not dataset:
            baseline = baseline.of_images(positions)
        return _Share(prefix, positions, self._kit.meter(data, baseline))

    def measure(self, predictions: Predictions, noise: Sequence[Noise] = ()) -> dict[str, float]:
        """Return the columns of a store: metrics in percent, head_sqnr_db in dB; those of held-out images with a prefix."""
        values: dict[str, float] = {}
        for share in self._shares:
            share_values = share.meter.values(
                predictions if self._selects_all else predictions.of_images(share.positions), self._requested_measures
            )
            if noise:
                share_values["head_sqnr_db"] = heads_sqnr_db(noise, share.positions)
            values.update({share.prefix + name: value for name, value in share_values.items()})
        return values
