# SPDX-License-Identifier: MIT
"""The data of a page about one network, frozen: whole configurations, parts of the network, what was not tested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

from mpnet.evaluation.compare import Interval
from mpnet.report.data.report_data import ReportData
from mpnet.speed.latency import Latency


@dataclass(frozen=True)
class PageRow:
    """A whole configuration.

    names:     what it is called, such as `recommended`; none for one that only stands beside the others.
    values:    of the task's quality and agreement in percent, on the images that judge, and of costs, by measure.
    intervals: of the differences from fp32 everywhere, by measure; {} for that itself.
    latency:   of one image on this machine, None: not timed.
    """

    names: tuple[str, ...]
    key: str
    values: Mapping[str, float]
    intervals: Mapping[str, Interval]
    latency: Latency | None


@dataclass(frozen=True)
class NetworkPart:
    """A part of the network: a block, or a layer that is in none.

    layers: with weights, by name. shapes: height, width and channels that leave it, without repeats.
    macs, weights: shares of the network's, 0 to 1. feeds_head: whether a layer of it feeds a head.
    precisions: of the recommended configuration, each once. noise: share, in percent, of the noise that int8 brings; None: not
    measured.
    """

    name: str
    layers: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    macs: float
    weights: float
    feeds_head: bool
    precisions: tuple[str, ...]
    noise: float | None


@dataclass(frozen=True)
class NetworkPage:
    """Everything that the page of one network shows.

    data:     of the sweep, without what is computed for its report. rows: fp32 everywhere first, which the others are compared
              with, then from dear to cheap.
    judging:  how many images the figures are of, and `labelled` how many of these have labels.
    in_shape: height, width and channels of the image that enters. classes: that it tells apart.
    raised:   nodes of the model's file, or layers where no file is known, that the recommended configuration does not lower the
              most, by precision.
    """

    data: ReportData
    network: str
    in_shape: tuple[int, int, int]
    classes: int
    judging: int
    labelled: int
    rows: tuple[PageRow, ...]
    parts: tuple[NetworkPart, ...]
    raised: Mapping[str, tuple[str, ...]]

    @property
    def chosen(self) -> PageRow:
        """Return the row that the page is about."""
        table = self.data.configurations
        return next(row for row in self.rows if row.key == table.keys[table.chosen or 0])
