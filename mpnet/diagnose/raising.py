# SPDX-License-Identifier: MIT
"""The precisions to which layers may be raised, as far as the program that will run the network has them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Collection, Mapping

from mpnet.config.target_file import TargetFile
from mpnet.engine.cost import LAYER_COSTS
from mpnet.engine.plan import Plan
from mpnet.model.precision import FP16, FP32, INT16, USUAL_NAMES, Precision
from mpnet.trial.defaults import runnable_precisions
from mpnet.trial.workbench import Workbench

_NEXT = {INT16: 1, FP32: 3}
"""Where what is higher than a precision begins; of other codes with int16, of other halves with fp32."""


@dataclass(frozen=True)
class Raising:
    """The precisions that layers may be raised to.

    available:    names of usual precisions by layer index; layers that are not there have all of them.
    integer_only: the network runs in whole numbers alone: codes are raised to int16.
    """

    available: Mapping[int, Collection[str]]
    integer_only: bool = False

    def raise_precision(self, layer: int, precision: Precision) -> Precision:
        """Return the next higher precision of a layer that is available: int16, fp16, fp32. The same where there is none."""
        if self.integer_only and precision.carries_scale:
            return INT16
        names = self.available.get(layer, USUAL_NAMES)
        higher = (INT16, FP16, FP32)[_NEXT.get(precision, 0 if precision.carries_scale else 2) :]
        return next((candidate for candidate in higher if candidate.name in names), precision)

    def count_cost(self, plan: Plan, layer: int) -> int:
        """Count the bit operations that are added when a layer is raised."""
        lowering = plan.lowerings[layer]
        raised_lowering = replace(lowering, precision=self.raise_precision(layer, lowering.precision))
        return LAYER_COSTS["bit_operations"](raised_lowering) - LAYER_COSTS["bit_operations"](lowering)


def find_raising(bench: Workbench, target: TargetFile | None) -> Raising:
    """Find what layers may be raised to: what the target runs, else what the experiment's sweep may choose.

    target: None: mpnet's own, which runs all. Raises: as `runnable_precisions`.
    """
    integer_only = bench.options.integer_only
    if target is not None:
        return Raising(runnable_precisions(bench.network, target), integer_only)
    sweep = bench.experiment.sweep
    names = USUAL_NAMES if sweep is None else tuple(name for name in USUAL_NAMES if name in sweep.precisions)
    # A sweep that may choose one precision alone says nothing of the program.
    return Raising(dict.fromkeys(bench.weighted_layers, names if len(names) > 1 else USUAL_NAMES), integer_only)
