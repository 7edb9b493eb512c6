# SPDX-License-Identifier: MIT
"""All that the trials of one experiment share: a network made ready, and the images on which it is evaluated."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Mapping, Sequence

from mpnet.data.dataset import Dataset
from mpnet.detection.conditions import Condition
from mpnet.detection.images import FlawedImage
from mpnet.trial.inputs import Inputs
from mpnet.trial.kit import Decoder, Predictions
from mpnet.trial.setup import Setup


@dataclass(frozen=True, eq=False, kw_only=True)
class Workbench(Setup):
    """A network made ready, on a data set; `trial.identity` names what it measures.

    inputs:   the data set's images as the network takes them.
    sources:  paths of the files that it was loaded from, by what they are.
    names:    of the network's classes; the data set may spell its own in another way.
    flawed:   images that are read although their files have flaws, once they were decoded.
    parent:   the same with the weights whose baseline agreement is measured with, None: these weights' own.
    """

    dataset: Dataset
    inputs: Inputs
    sources: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    flawed: list[FlawedImage] = field(default_factory=list)
    parent: Workbench | None = None

    @cached_property
    def decoder(self) -> Decoder[Predictions]:
        """Return the decoder from output tensors to predictions."""
        return self.kit.decoder(self.experiment, self.network, self.dataset)

    def of_images(self, positions: Sequence[int]) -> Workbench:
        """Return the same with some of its images, in the data set's order; prepared weights are shared."""
        ordered = sorted(positions)
        parent = None if self.parent is None else self.parent.of_images(ordered)
        return self._sharing_weights(
            replace(self, dataset=self.dataset.subset(ordered), inputs=self.inputs.of(ordered), parent=parent)
        )

    @property
    def reference(self) -> Workbench:
        """Return the workbench whose baseline is the reference: the parent's, else this one."""
        return self.parent or self

    def under(self, condition: Condition | None) -> Workbench:
        """Return the same with all images under a condition, None: as they are; calibration and prepared weights stay."""
        if condition == self.inputs.condition:
            return self
        experiment = self.experiment
        if experiment.data is not None:
            experiment = replace(
                experiment, data=replace(experiment.data, condition=None if condition is None else str(condition))
            )
        parent = None if self.parent is None else self.parent.under(condition)
        return self._sharing_weights(replace(self, experiment=experiment, inputs=self.inputs.under(condition), parent=parent))

    def _sharing_weights(self, other: Workbench) -> Workbench:
        other.__dict__["prepared"] = self.prepared
        return other
