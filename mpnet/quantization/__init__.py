# SPDX-License-Identifier: MIT
"""Ranges, scales, calibration and corrections."""

from typing import TYPE_CHECKING

from mpnet.lazy import lazy_names

if TYPE_CHECKING:
    from mpnet.quantization.fake_quant import (
        fake_quant_with_min_max_vars,
        fake_quant_with_min_max_vars_per_channel,
        quantize_and_dequantize,
    )
    from mpnet.quantization.scheme import (
        ActivationScheme,
        QuantParams,
        dequantize_activation,
        dequantize_step,
        fake_quantize_activation,
        params_to_quant,
        quantize_activation,
        range_to_params,
    )
    from mpnet.quantization.tensorflow import dequantize, quantize
    from mpnet.quantization.weights import WeightScheme, dequantize_weights, quantize_weights

_LAZY = {
    "mpnet.quantization.fake_quant": (
        "fake_quant_with_min_max_vars",
        "fake_quant_with_min_max_vars_per_channel",
        "quantize_and_dequantize",
    ),
    "mpnet.quantization.scheme": (
        "ActivationScheme",
        "QuantParams",
        "dequantize_activation",
        "dequantize_step",
        "fake_quantize_activation",
        "params_to_quant",
        "quantize_activation",
        "range_to_params",
    ),
    "mpnet.quantization.tensorflow": ("dequantize", "quantize"),
    "mpnet.quantization.weights": ("WeightScheme", "dequantize_weights", "quantize_weights"),
}
# Formulas of TensorFlow's are not needed to run what uses none.
__getattr__ = lazy_names(__name__, _LAZY)
__all__ = sorted(name for names in _LAZY.values() for name in names)
