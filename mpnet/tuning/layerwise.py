# SPDX-License-Identifier: MIT
"""A scale and a bias of each channel, fitted layer by layer: what a convolution gives before its activation to that of fp32."""

from __future__ import annotations

from typing import Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.assign import PrecisionPlan
from mpnet.engine.options import EngineOptions
from mpnet.engine.prepare import Prepared
from mpnet.model.quantization import LEARNT
from mpnet.model.weights import Weights
from mpnet.progress import Advance, unseen
from mpnet.quantization.equalise import FoldedConvolution
from mpnet.tuning.channel_fit import ChannelFit
from mpnet.tuning.lockstep import LayerPass, Lockstep


def corrected_layers(
    prepared: Prepared,
    weights: Weights,
    precisions: PrecisionPlan,
    options: EngineOptions,
    batches: Sequence[NDArray[np.float32]],
    threads: int = 1,
    advance: Advance = unseen,
) -> dict[int, FoldedConvolution]:
    """Return every convolution folded, with the gains and offsets that bring its result nearest to that of fp32.

    Arguments as of `Lockstep`; advance counts layers. Raises: EngineError that names the layer, DataError without images.
    """
    return Lockstep(prepared, weights, precisions, options, batches, threads).run_all(_corrected, advance)


def _corrected(layer_pass: LayerPass) -> FoldedConvolution:
    fit = ChannelFit(_has_gain(layer_pass))
    for batch in range(len(layer_pass.inputs)):
        fit.observe(layer_pass.target(batch), layer_pass.result(batch, layer_pass.lockstep.before_activation))
    return fit.result().applied_to(layer_pass.convolution)


def _has_gain(layer_pass: LayerPass) -> bool:
    """Return whether a gain leaves the codes of a layer's weights as they are, and moves their scale alone."""
    precision = layer_pass.lowered.precision
    if not precision.carries_scale:
        return False
    scheme, _ = layer_pass.lockstep.options.of(layer_pass.index).rounded_to(precision)
    return scheme.granularity != "per_tensor" and scheme.rounding != LEARNT and scheme.method != "power_of_two"
