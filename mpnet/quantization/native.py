# SPDX-License-Identifier: MIT
"""Scheme and activations in C, a batch at a time: the same bits as mpnet.quantization.scheme.

Parameters travel as a NumPy array of PARAMS, one row per image, laid out as C's mp_quant_params.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array, CodeArray
from mpnet.errors import PrecisionError
from mpnet.kernels import codes as kernel_codes
from mpnet.kernels.codes import INTEGER_PARAMS, PARAMS, REAL_PARAMS, CScheme, ParamsArray
from mpnet.kernels.core import NONFINITE, OK
from mpnet.kernels.interface import TensorQuant
from mpnet.kernels.isa import kernels
from mpnet.model.quantization import ACTIVATION_MODES, SCHEME_ROUNDINGS, TENSORFLOW_MODES
from mpnet.quantization.scheme import ActivationScheme, QuantParams


def ranges_to_params(ranges: NDArray[np.float32], scheme: ActivationScheme) -> ParamsArray:
    """Return the parameters (n,) of PARAMS for the (n, 2) [min, max] of n images.

    Raises: PrecisionError, naming the image when there are several, for a range that is not finite, has min > max or
    is too narrow or wide for a mode of TensorFlow.
    """
    pairs = np.ascontiguousarray(ranges, np.float32)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise PrecisionError(f"activation ranges have shape {pairs.shape}; they must be (images, 2)")
    params = np.zeros(len(pairs), PARAMS)
    status, image = kernel_codes.ranges_to_params(pairs, params, c_scheme(scheme))
    if status != OK:
        low, high = pairs[image]
        where = f" of image {image}" if len(pairs) > 1 else ""
        if status == NONFINITE:
            raise PrecisionError(f"activation range [{low}, {high}]{where} is not finite; the layer before overflowed")
        if low > high:
            raise PrecisionError(f"activation range{where} has min {low} > max {high}; calibrate again or swap them")
        raise PrecisionError(
            f"activation range [{low}, {high}]{where} is too narrow or too wide for mode {scheme.mode}; "
            "set ensure_minimum_range above 0 or use mode affine"
        )
    return params


def c_scheme(scheme: ActivationScheme) -> CScheme:
    """Return the scheme as C takes it."""
    return CScheme(
        ACTIVATION_MODES.index(scheme.mode),
        SCHEME_ROUNDINGS.index(str(scheme.rounding)),
        int(scheme.narrow_range),
        scheme.ensure_minimum_range,
        scheme.bits,
    )


def quant_params(params: ParamsArray, image: int) -> QuantParams:
    """Return one row of an array of PARAMS as QuantParams."""
    record = params[image]
    return QuantParams(
        ACTIVATION_MODES[record["mode"]],
        SCHEME_ROUNDINGS[record["rounding"]],
        **{name: record[name].item() for name in (*INTEGER_PARAMS, *REAL_PARAMS)},
    )


def tensor_quant(params: ParamsArray) -> TensorQuant:
    """Return the scales, zero points and offsets of an array of PARAMS, as kernels take them."""
    return TensorQuant(scale=params["scale"].copy(), zero_point=params["zero_point"].copy(), offset=params["offset"].copy())


def quantize_activations(
    x: NDArray[np.float32], params: ParamsArray, out: CodeArray | None = None, *, threads: int = 1
) -> CodeArray:
    """Quantize a batch x (n, ...), float32, C-contiguous; params: (n,) of PARAMS; out: int8 or int16 of x's shape, or None.

    Raises: PrecisionError for NaN or infinity in x, and for arrays that do not fit.
    """
    codes = np.empty(x.shape, _codes_type(params)) if out is None else out
    _check_batch(x, codes, params, np.float32, _codes_type(params))
    if _are_linear(params):
        if not np.isfinite(x).all():
            raise PrecisionError("activations hold NaN or infinity; the layer before them overflowed")
        one, quant = quant_params(params, 0), tensor_quant(params)
        kernels().quantize(_as_images(x), _as_images(codes), quant, one.rounding, one.low, one.high, threads=threads)
        return codes
    status = kernel_codes.tf_quantize(x, codes, params, threads)
    if status == NONFINITE:
        raise PrecisionError("activations hold NaN or infinity; the layer before them overflowed")
    if status != OK:
        raise PrecisionError("activation parameters are not those that ranges_to_params gives")
    return codes


def dequantize_activations(
    q: CodeArray, params: ParamsArray, out: NDArray[np.float32] | None = None, *, tensorflow: bool = True, threads: int = 1
) -> NDArray[np.float32]:
    """Return the reals of a batch of codes q (n, ...), int8 or int16, C-contiguous.

    tensorflow: in TensorFlow's modes, its order of operations, as a Dequantize step gives it; False: as the integer
    kernels read codes, (q - zero_point) * scale + offset.
    """
    reals = np.empty(q.shape, np.float32) if out is None else out
    _check_batch(q, reals, params, _codes_type(params), np.float32)
    if not tensorflow or _are_linear(params):
        kernels().dequantize(_as_images(q), _as_images(reals), tensor_quant(params), threads=threads)
        return reals
    if kernel_codes.tf_dequantize(q, reals, params, threads) != OK:
        raise PrecisionError("activation parameters are not those that ranges_to_params gives")
    return reals


def _codes_type(params: ParamsArray) -> type[np.int8] | type[np.int16]:
    return np.int16 if len(params) > 0 and params["high"][0] > 127 else np.int8


def _are_linear(params: ParamsArray) -> bool:
    """Return whether the kernels' own formula holds; all rows are of one scheme."""
    return len(params) > 0 and bool((params["mode"] < ACTIVATION_MODES.index(TENSORFLOW_MODES[0])).all())


def _as_images(x: Array) -> Array:
    return x.reshape(len(x), 1, 1, -1)


def _check_batch(
    source: Array, target: Array, params: ParamsArray, source_type: type[np.generic], target_type: type[np.generic]
) -> None:
    """Check a batch: C reads raw memory, so everything about it is checked here."""
    if source.dtype != source_type or target.dtype != target_type:
        expected = f"{np.dtype(source_type)} -> {np.dtype(target_type)}"
        raise PrecisionError(f"activations are {source.dtype} -> {target.dtype}; expected {expected}")
    if source.ndim < 1 or source.shape != target.shape or params.dtype != PARAMS or params.shape != source.shape[:1]:
        raise PrecisionError(
            f"a batch of shape {source.shape} needs as many parameters and an equal output, not "
            f"{params.shape} and {target.shape}"
        )
    if not (source.flags.c_contiguous and target.flags.c_contiguous and params.flags.c_contiguous):
        raise PrecisionError("activations and parameters must be C-contiguous")
