# SPDX-License-Identifier: MIT
"""A network made ready: its weights, how it is quantised, what calibration images gave, and the kernels that run it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.config.experiment import Experiment
from mpnet.engine.assign import PrecisionPlan, assign
from mpnet.engine.calibration_statistics import CalibrationStatistics
from mpnet.engine.options import EngineOptions
from mpnet.engine.plan import Plan, build_plan
from mpnet.engine.prepare import Prepared
from mpnet.formats.files.cache import open_cache
from mpnet.json_values import Json
from mpnet.kernels.implementation import Kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import PRECISIONS, Precision
from mpnet.model.weights import Weights
from mpnet.trial.image_statistics import ImageStatistics
from mpnet.trial.kit import Kit
from mpnet.trial.task import kit_of, task_of


@dataclass(frozen=True, eq=False)
class CalibratedOptions:
    """Everything beside the network that decides packed weights; sweeps send it to their workers.

    weights:       as files hold them.
    engine:        options of quantisation and batch norm, calibrated ranges included.
    channel_means: of each convolution's input over the calibration images, for bias correction.
    statistics:    for weights of fewer than eight bits.
    """

    weights: Weights
    engine: EngineOptions
    channel_means: Mapping[int, NDArray[np.float64]] | None = None
    statistics: CalibrationStatistics | None = None

    def prepare(self, network: NetworkSpec, kernels: Kernels) -> Prepared:
        """Return the network's weights folded, quantised and packed; what was packed before comes from the cache."""
        return Prepared.under(
            self.engine,
            network,
            self.weights,
            kernels,
            channel_means=self.channel_means,
            statistics=self.statistics,
            cache=open_cache(),
        )


@dataclass(frozen=True, eq=False)
class Calibration:
    """The results of calibration images, beside the ranges that options hold.

    digest:        of ranges and channel means; None where nothing asks for them.
    channel_means: of each convolution's input, float64 (channels,) by layer index, for bias correction.
    evaluated_images: names of the calibration images that the data set evaluates as well.
    statistics:    for weights of fewer than eight bits; None: nothing was calibrated yet.
    image_values:  the least and the largest value of the images, 0 to 1, where their range was sought.
    """

    digest: str | None = None
    channel_means: Mapping[int, NDArray[np.float64]] | None = None
    evaluated_images: tuple[str, ...] = ()
    statistics: ImageStatistics | None = None
    image_values: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Setup:
    """A network made ready to run.

    options: of quantisation and batch norm, calibrated ranges included. threads: of one forward pass.
    """

    experiment: Experiment
    network: NetworkSpec
    weights: Weights
    options: EngineOptions
    kernels: Kernels
    threads: int
    calibration: Calibration = Calibration()

    @cached_property
    def prepared(self) -> Prepared:
        """Return folded, quantised and packed weights, made on first use and shared by all plans."""
        calibrated = CalibratedOptions(self.weights, self.options, self.calibration.channel_means, self.calibration.statistics)
        return calibrated.prepare(self.network, self.kernels)

    @cached_property
    def kit(self) -> Kit[Any]:
        """Return the kit for the network's outputs. Raises: ConfigError for a network that is for no known task."""
        return kit_of(task_of(self.network))

    def assign(self, overrides: Mapping[int, Precision] | None = None) -> PrecisionPlan:
        """Return the experiment's precision of every layer, with a sweep's choices over it."""
        section = self.experiment.precision
        return assign(self.network, section.default, dict(section.layers), overrides)

    def uniform(self, name: str) -> PrecisionPlan:
        """Return every layer with weights at one precision, whatever cfg and experiment say: baselines."""
        return assign(self.network, overrides=dict.fromkeys(self.weighted_layers, PRECISIONS[name]))

    def plan(self, precisions: PrecisionPlan) -> Plan:
        """Return the steps of a forward pass."""
        return build_plan(self.network, precisions, self.options)

    @property
    def weighted_layers(self) -> tuple[int, ...]:
        """Return the indices of the layers with weights."""
        return tuple(layer.index for layer in self.network.convolutions)

    @cached_property
    def quantization(self) -> dict[str, Json]:
        """Return the complete quantisation options as plain values: what all layers have, and per layer what differs."""
        by_layer = {
            index: self.options.complete[index].plain_values()
            for index in self.weighted_layers
            if index in self.options.complete
        }
        if not by_layer:
            return {}
        texts = [repr(value) for value in by_layer.values()]
        common = max(by_layer.values(), key=lambda value: (texts.count(repr(value)), repr(value)))
        differing = {str(index): value for index, value in by_layer.items() if value != common}
        return {**common, **({"layers": differing} if differing else {})}

    def statistics_digest(self, precisions: Iterable[Precision]) -> str | None:
        """Return the digest of the calibration statistics that decide networks with layers of these precisions, or None."""
        kinds = {self.options.of(index) for index in self.weighted_layers}
        needed = any(options.needs_statistics(precision) for precision in set(precisions) for options in kinds)
        statistics = self.calibration.statistics
        return statistics.digest if statistics is not None and needed else None
