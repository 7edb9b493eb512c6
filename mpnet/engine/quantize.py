"""The Quantize step: range -> scale and zero point -> int8, per image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.operations import Quantize
from mpnet.engine.tensor import Tensor
from mpnet.kernels.interface import Kernels, TensorQuant
from mpnet.quantization.scheme import params_to_quant, quantize_activation, range_to_params
from mpnet.spec.precision import INT8


def quantize_tensor(x: Tensor, operation: Quantize, kernels: Kernels, threads: int = 1) -> Tensor:
    """x (fp32 or fp16) as int8. A dynamic range is taken from x.ranges where known, else measured.

    Raises: KernelError or PrecisionError when x is not finite.
    """
    if operation.range is None:
        if x.ranges is None:
            x.ranges = kernels.value_range(x.data, threads=threads)
        ranges = x.ranges
    else:
        ranges = np.broadcast_to(np.array(operation.range, np.float32), (x.images, 2))
    scheme = operation.scheme
    params = [range_to_params(float(low), float(high), scheme) for low, high in ranges]
    quant: TensorQuant = params_to_quant(params)
    codes: NDArray[np.int8] = np.empty(x.data.shape, np.int8)
    if scheme.is_tensorflow:
        for image, one in enumerate(params):
            codes[image] = quantize_activation(x.data[image], one)
    else:
        assert scheme.rounding is not None
        kernels.quantize(
            x.data, codes, quant, rounding=scheme.rounding, low=scheme.low, high=scheme.high, threads=threads
        )
    return Tensor(codes, INT8, quant)
