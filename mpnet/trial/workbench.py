# SPDX-License-Identifier: MIT
"""All that the trials of one experiment share: network, weights, images, kernels; loaded and packed once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.experiment import Experiment
from mpnet.config.identity import ARITHMETIC_VERSION, TrialIdentity
from mpnet.data.dataset import Dataset
from mpnet.detection.conditions import Condition
from mpnet.engine.assign import PrecisionPlan, assign
from mpnet.engine.options import EngineOptions
from mpnet.engine.plan import Plan, build_plan
from mpnet.engine.prepare import Prepared
from mpnet.export import Configuration
from mpnet.formats.cfg.read import read_cfg_bytes
from mpnet.formats.files.cache import open_cache
from mpnet.kernels.calls import Kernels
from mpnet.messages import few
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import PRECISIONS, Precision
from mpnet.model.weights import Weights
from mpnet.trial.image_statistics import ImageStatistics
from mpnet.trial.inputs import Inputs
from mpnet.trial.kit import Decoder, Kit
from mpnet.trial.run_result import CalibrationImages
from mpnet.trial.task import kit_of, task_of


@dataclass(frozen=True, eq=False)
class Workbench:
    """What all trials of one experiment share.

    options:     of quantisation and batch norm, calibrated ranges included.
    calibration: digest of what calibration gave: ranges, channel means; None where nothing asks for it.
    channel_means: of each convolution's input over the calibration images, for bias correction.
    statistics:  calibration statistics for weights of fewer than eight bits; None: nothing was calibrated yet.
    names:       of the network's classes; the data set may spell its own in another way.
    repaired:    damaged JPEGs of which an image was made all the same; known once they were decoded.
    calibrated_on: names of the data set's images that calibration took as well.
    sources:     paths of the files that it was loaded from, by what they are.
    """

    experiment: Experiment
    network: NetworkSpec
    weights: Weights
    dataset: Dataset
    inputs: Inputs
    options: EngineOptions
    kernels: Kernels
    threads: int
    calibration: str | None = None
    channel_means: Mapping[int, NDArray[np.float64]] | None = None
    calibrated_on: tuple[str, ...] = ()
    statistics: ImageStatistics | None = None
    sources: Mapping[str, str] | None = None
    names: tuple[str, ...] = ()
    repaired: list[str] = field(default_factory=list)

    @cached_property
    def prepared(self) -> Prepared:
        """Folded, quantised and packed weights, made on first use and shared by all plans."""
        return Prepared(
            self.network,
            self.weights,
            self.kernels,
            batch_norm=self.options.batch_norm,
            equalise=self.options.equalise,
            channel_means=self.channel_means,
            statistics=self.statistics,
            cache=open_cache(),
        )

    def notes(self, precisions: Iterable[Precision]) -> list[str]:
        """What a reader of results of networks with layers of these precisions should know of the images."""
        names = sorted({Path(path).name for path in self.repaired})
        remarks = [*self.dataset.notes]
        if names:
            remarks.append(f"{len(names)} damaged JPEGs were decoded by OpenCV, which guesses what is missing: {few(names)}")
        images, fitted = self.calibrated_on, "ranges"
        if not images and self.statistics is not None and self.statistics_digest(precisions) is not None:
            images, fitted = self.statistics.evaluated_images, "weights"
        if images:
            remarks.append(
                f"calibration also used {len(images)} of the evaluated images, so {fitted} fit these better than other "
                f"images: {few(images)}; name others in data.calibration.images"
            )
        return remarks

    @cached_property
    def kit(self) -> Kit[Any]:
        """What is done with its outputs. Raises: ConfigError for a network that is for nothing known."""
        return kit_of(task_of(self.network))

    @cached_property
    def decoder(self) -> Decoder[Any]:
        """From output tensors to predictions."""
        return self.kit.decoder(self.experiment, self.network, self.dataset)

    def assign(self, overrides: Mapping[int, Precision] | None = None) -> PrecisionPlan:
        """The experiment's precision of every layer, with a sweep's choices over it."""
        section = self.experiment.precision
        return assign(self.network, section.default, dict(section.layers), overrides)

    def uniform(self, name: str) -> PrecisionPlan:
        """Every layer with weights at one precision, whatever cfg and experiment say: baselines."""
        return assign(self.network, overrides=dict.fromkeys(self._weighted, PRECISIONS[name]))

    def of_images(self, positions: Sequence[int]) -> Workbench:
        """The same with some of its images; prepared weights are shared."""
        part = replace(self, dataset=self.dataset.subset(list(positions)), inputs=self.inputs.of(positions))
        part.__dict__["prepared"] = self.prepared
        return part

    def under(self, condition: Condition | None) -> Workbench:
        """The same with all images under a condition, None: as they are; calibration and prepared weights stay."""
        if condition == self.inputs.condition:
            return self
        experiment = self.experiment
        if experiment.data is not None:
            experiment = replace(
                experiment, data=replace(experiment.data, condition=None if condition is None else str(condition))
            )
        changed = replace(self, experiment=experiment, inputs=self.inputs.under(condition))
        changed.__dict__["prepared"] = self.prepared
        return changed

    def plan(self, precisions: PrecisionPlan) -> Plan:
        """The steps of a forward pass."""
        return build_plan(self.network, precisions, self.options)

    @property
    def _weighted(self) -> tuple[int, ...]:
        return tuple(layer.index for layer in self.network.convolutions)

    @cached_property
    def quantization(self) -> dict[str, Any]:
        """The complete quantisation options as plain values: what all layers have, and per layer what differs."""
        by_layer = {
            index: self.options.complete[index].plain_values() for index in self._weighted if index in self.options.complete
        }
        if not by_layer:
            return {}
        texts = [repr(value) for value in by_layer.values()]
        common = max(by_layer.values(), key=lambda value: (texts.count(repr(value)), repr(value)))
        differing = {str(index): value for index, value in by_layer.items() if value != common}
        return {**common, **({"layers": differing} if differing else {})}

    @cached_property
    def protocol(self) -> dict[str, Any]:
        """The `protocol` of a result: everything between files and figures that somebody could choose otherwise."""
        data = self.experiment.data
        return {
            "dataset": data.format if data else "",
            "images": len(self.dataset.images),
            **({"unlabelled": self.dataset.unlabelled} if self.dataset.unlabelled else {}),
            **({"condition": data.condition} if data and data.condition else {}),
            "resize": self.experiment.detection.resize,
            **self.kit.protocol(self.experiment, self.network, self.dataset),
            "batch_norm": self.options.batch_norm,
            **({} if self.network.dialect == "darknet" == self.network.own_dialect else {"dialect": self.network.dialect}),
            "quantization": self.quantization,
            "input": list(self.network.in_shape),
        }

    def statistics_digest(self, precisions: Iterable[Precision]) -> str | None:
        """Digest of the calibration statistics that decide networks with layers of these precisions; None where none do."""
        kinds = {self.options.of(index) for index in self._weighted}
        needed = any(options.needs_statistics(precision) for precision in set(precisions) for options in kinds)
        return self.statistics.digest if self.statistics is not None and needed else None

    def calibration_images(self, precisions: Iterable[Precision]) -> CalibrationImages | None:
        """Return which images calibration took; None where nothing was calibrated."""
        if self.experiment.data is None or (self.calibration is None and self.statistics_digest(precisions) is None):
            return None
        section = self.experiment.data.calibration
        images = None if section.images is None else os.path.abspath(section.images)
        return CalibrationImages(images, count=section.count, seed=section.seed)

    def identity(self, precisions: PrecisionPlan, among: Iterable[Precision] = ()) -> TrialIdentity:
        """What decides the result of this plan. among: precisions of other plans that its parts shall do for."""
        # The cfg's own dialect is said by the cfg's digest.
        beside = {"quantization", "dataset"} | ({"dialect"} if self.network.dialect == self.network.own_dialect else set())
        protocol = {key: value for key, value in self.protocol.items() if key not in beside}
        return TrialIdentity(
            self.network.digest,
            self.weights.digest,
            self.dataset.digest,
            self.calibration,
            precisions.key,
            self.quantization,
            protocol,
            ARITHMETIC_VERSION,
            lessons=self.statistics_digest([*precisions.of_weights, *among]),
        )

    def configuration(self, precisions: PrecisionPlan, document: Mapping[str, Any] | None = None) -> Configuration:
        """These precisions with everything else that decides a result. document: what else is known of it."""
        digests = {name: digest for name, digest in self.identity(precisions).digests().items() if digest is not None}
        described = {
            "name": self.experiment.name,
            "protocol": self.protocol,
            "digests": digests,
            "sources": dict(self.sources or {}),
            "dataset": {"category_ids": [c.id for c in self.dataset.categories]},
            **(document or {}),
        }
        return Configuration.from_prepared(
            self.prepared,
            precisions,
            self.options,
            content=read_cfg_bytes(self.experiment.model.cfg),
            names=self.names or self.dataset.names,
            document=described,
        )
