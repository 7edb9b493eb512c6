"""Scales for sums that an engine stores as codes before the activation."""

from __future__ import annotations

import os

from mpnet.engine.operations import Quantize
from mpnet.quantization.scheme import ActivationScheme, QuantParams, range_to_params


def sums_range(activation: str, low: float, high: float) -> tuple[float, float]:
    """Which sums to keep apart so that results in [low, high] stay exact enough."""
    if activation == "leaky":
        share = float(os.environ.get("SHARE", "1"))
        return (10 * low * share if low < 0 else low, high)
    if activation == "logistic":
        return (-8.0, 8.0)
    return (-8.0, max(high, 0.0))


def sums_params(activation: str, quantize: Quantize) -> QuantParams:
    """Of the sums whose activated results this Quantize reads."""
    assert quantize.range is not None
    return range_to_params(*sums_range(activation, *quantize.range), ActivationScheme())
