"""A value between two steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpnet.kernels.interface import TensorQuant
from mpnet.quantization.native import tensor_quant
from mpnet.spec.precision import FP32, Precision

if TYPE_CHECKING:
    from mpnet.engine.operations import Operation


@dataclass(eq=False)
class Tensor:
    """data: (n, h, w, c), dense, of the precision's storage type.

    params:    (n,) of mpnet.quantization.native.PARAMS: scale, zero point and the rest per image, for int8.
    ranges:    (n, 2) minimum and maximum per image where they are known already.
    converted: conversions of this tensor that were made before, by operation; they live as long as it does.
    """

    data: NDArray[Any]
    precision: Precision = FP32
    params: NDArray[Any] | None = None
    ranges: NDArray[np.float32] | None = None
    converted: dict[Operation, Tensor] = field(default_factory=dict, repr=False)

    @property
    def images(self) -> int:
        """n."""
        return int(self.data.shape[0])

    @property
    def quant(self) -> TensorQuant | None:
        """What kernels need to read int8; None for other precisions."""
        return None if self.params is None else tensor_quant(self.params)

    @property
    def size_bytes(self) -> int:
        """Memory of this tensor and of its kept conversions."""
        return int(self.data.nbytes) + sum(other.size_bytes for other in self.converted.values())
