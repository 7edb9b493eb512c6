"""The Quantize and Dequantize steps: range -> scale and zero point -> int8, per image; and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.operations import Dequantize, Quantize
from mpnet.engine.tensor import Tensor
from mpnet.kernels.interface import Kernels
from mpnet.quantization import native as activations
from mpnet.quantization.scheme import MODES, TENSORFLOW_MODES
from mpnet.spec.precision import FP32, INT8


def tensor_ranges(x: Tensor, kernels: Kernels, threads: int = 1) -> NDArray[np.float32]:
    """(n, 2) minimum and maximum per image; measured once, then kept with the tensor."""
    if x.ranges is None:
        x.ranges = kernels.value_range(x.data, threads=threads)
    return x.ranges


def quantization_params(x: Tensor, operation: Quantize, kernels: Kernels, threads: int = 1) -> NDArray[Any]:
    """(n,) of mpnet.quantization.native.PARAMS: what the operation makes of x's ranges, or of its calibrated one."""
    if operation.range is None:
        ranges = tensor_ranges(x, kernels, threads)
    else:
        ranges = np.repeat(np.array([operation.range], np.float32), x.images, axis=0)
    return activations.ranges_to_params(ranges, operation.scheme)


def quantize_tensor(x: Tensor, operation: Quantize, kernels: Kernels, threads: int = 1) -> Tensor:
    """x (fp32 or fp16) as int8.

    Raises: KernelError or PrecisionError when x is not finite or its range cannot be scaled.
    """
    params = quantization_params(x, operation, kernels, threads)
    codes: NDArray[np.int8] = np.empty(x.data.shape, np.int8)
    scheme = operation.scheme
    if scheme.is_tensorflow:
        activations.quantize_activations(x.data.astype(np.float32, copy=False), params, codes, threads=threads)
    else:
        assert scheme.rounding is not None
        kernels.quantize(
            x.data, codes, activations.tensor_quant(params),
            rounding=scheme.rounding, low=scheme.low, high=scheme.high, threads=threads,
        )
    return Tensor(codes, INT8, params)


def dequantize_tensor(x: Tensor, operation: Dequantize, kernels: Kernels, threads: int = 1) -> Tensor:
    """x (int8) as fp32 or fp16; TensorFlow's modes by TensorFlow's order of operations."""
    assert x.params is not None
    out = np.empty(x.data.shape, operation.target.storage)
    if uses_tensorflow(x.params):
        reals = activations.dequantize_activations(x.data, x.params, tensorflow=True, threads=threads)
        out[...] = reals
    else:
        kernels.dequantize(x.data, out, activations.tensor_quant(x.params), threads=threads)
    return Tensor(out, operation.target)


def uses_tensorflow(params: NDArray[Any]) -> bool:
    """Whether these parameters are of one of TensorFlow's modes."""
    return MODES[int(params["mode"][0])] in TENSORFLOW_MODES


def cast_tensor(x: Tensor, target: Any, kernels: Kernels, threads: int = 1) -> Tensor:
    """fp32 as fp16 or back."""
    out = np.empty(x.data.shape, target.storage)
    kernels.cast(x.data, out, threads=threads)
    return Tensor(out, target, None, x.ranges if target == FP32 else None)
