# SPDX-License-Identifier: MIT
"""A finished decision: everything that decides what a network gives, whatever program runs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Callable, Mapping

from mpnet.engine.assign import PrecisionPlan
from mpnet.engine.options import EngineOptions
from mpnet.engine.plan import Plan, build_plan
from mpnet.engine.prepare import Prepared
from mpnet.model.network import NetworkSpec

Material = tuple[EngineOptions, Prepared]
"""Options with calibrated ranges, and folded weights and biases."""


@dataclass(frozen=True, eq=False)
class Configuration:
    """One network at one assignment of precisions.

    network, precisions: the layers, and the precision of each.
    open_material: reads weights and calibrates when somebody first asks for options, weights or plan; a target that needs
              none of them works without their files. Raises MpnetError, one line, when they are missing.
    content:  of the cfg.
    names:    of the classes.
    document: what a result or a store says of it: name, protocol (resize, confidence, nms, ...), sources, digests,
              metrics. Empty values where nothing is known. `operating_point`: the score threshold to deploy with, where
              `mpnet export --score` asked for it; files are the same as ever without it.
    """

    network: NetworkSpec
    precisions: PrecisionPlan
    open_material: Callable[[], Material] = field(repr=False)
    content: bytes = field(default=b"", repr=False)
    names: tuple[str, ...] = ()
    document: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def from_prepared(
        prepared: Prepared,
        precisions: PrecisionPlan,
        options: EngineOptions,
        *,
        content: bytes = b"",
        names: tuple[str, ...] = (),
        document: Mapping[str, Any] | None = None,
    ) -> Configuration:
        """Return a configuration whose weights and ranges are at hand."""
        return Configuration(prepared.network, precisions, lambda: (options, prepared), content, names, document or {})

    @property
    def operating_point(self) -> dict[str, Any]:
        """Return `operating_point` of the document as a member of what travels with a file; {} where there is none."""
        return {key: dict(value) for key, value in self.document.items() if key == "operating_point"}

    @property
    def is_tuned(self) -> bool:
        """Return whether its weights came from others of the same network, so that an imported file has not these."""
        return bool(self.document.get("sources", {}).get("parent"))

    @cached_property
    def _material(self) -> Material:
        return self.open_material()

    @property
    def options(self) -> EngineOptions:
        """Return how layers are quantised, calibrated ranges included."""
        return self._material[0]

    @property
    def prepared(self) -> Prepared:
        """Return the weights: `folded` by layer index with biases; `constants(operation)` as a step of the plan uses them."""
        return self._material[1]

    @property
    def is_integer_only(self) -> bool:
        """Return whether nothing between the image and the heads is a real."""
        return any(precision.carries_scale for precision in self.precisions.of_weights) and self.options.integer_only

    @cached_property
    def plan(self) -> Plan:
        """Return the steps of a forward pass, conversions visible."""
        return build_plan(self.network, self.precisions, self.options)


def describe_layer(network: NetworkSpec, index: int) -> str:
    """Return a layer as messages name it."""
    return f"layer {index} ({network.layers[index].name})"
