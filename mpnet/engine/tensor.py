"""A value between two steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpnet.kernels.interface import TensorQuant
from mpnet.spec.precision import FP32, Precision

if TYPE_CHECKING:
    from mpnet.engine.operations import Operation


@dataclass(eq=False)
class Tensor:
    """data: (n, h, w, c), dense, of the precision's storage type.

    quant:     scale, zero point and offset per image, for int8.
    ranges:    (n, 2) minimum and maximum per image where they are known already.
    converted: conversions of this tensor that were made before, by operation; they live as long as it does.
    """

    data: NDArray[Any]
    precision: Precision = FP32
    quant: TensorQuant | None = None
    ranges: NDArray[np.float32] | None = None
    converted: dict[Operation, Tensor] = field(default_factory=dict, repr=False)

    @property
    def images(self) -> int:
        """n."""
        return int(self.data.shape[0])

    @property
    def size_bytes(self) -> int:
        """Memory of this tensor and of its kept conversions."""
        return int(self.data.nbytes) + sum(other.size_bytes for other in self.converted.values())
