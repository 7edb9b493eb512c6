"""Weights as 16-bit numbers, as files of other programs store them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import EngineError
from mpnet.spec.network import LayerSpec

LARGEST = 65504.0


def halves_of(layer: LayerSpec, weights: NDArray[Any]) -> NDArray[np.float16]:
    """Rounded to the nearest half. Raises: EngineError that names the layer for a weight that is beyond all of them."""
    with np.errstate(over="ignore"):
        halves = weights.astype(np.float16)
    if not np.isfinite(halves).all():
        raise EngineError(
            f"layer {layer.index} ({layer.name}) as fp16: a weight is {np.abs(weights).max():g}, beyond {LARGEST:g}, "
            "the largest half; keep it in fp32"
        )
    return halves
