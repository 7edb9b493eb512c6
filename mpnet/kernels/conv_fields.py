# SPDX-License-Identifier: MIT
"""Fields of mp_conv_args: how a convolution reads its input, and what its sums become.

Raises: KernelError that names the argument that does not fit.
"""

from __future__ import annotations

import numpy as np

from mpnet.errors import KernelError
from mpnet.kernels.arguments import CODES, FLOAT, INT, WIDE_INT, ConvFields, check, check_codes, code_of
from mpnet.kernels.device import Values
from mpnet.kernels.interface import CodeRules, IntegerOutput, PackedConv
from mpnet.kernels.scales import ImageScales, Quant, per_image, scales_of
from mpnet.model.precision import Precision
from mpnet.model.quantization import ROUNDINGS


def code_fields(packed: PackedConv, images: int, in_scales: ImageScales | None, weight_scale: Values | None) -> ConvFields:
    """Return the fields that say what codes of the input and of the weights mean."""
    scale, zero_point, offset = per_image(in_scales, images, "in_quant", "scale", "zero_point", "offset")
    if weight_scale is None:
        raise KernelError("weight_scale is missing; a convolution of codes needs one value per output channel")
    check(weight_scale, "weight_scale", FLOAT, (packed.shape.out_channels,))
    return {"weight_scale": weight_scale, "in_scale": scale, "in_zero_point": zero_point, "in_offset": offset}


def conversion_fields(
    precision: Precision, x: Values, images: int, in_scales: ImageScales | None, rules: CodeRules
) -> ConvFields:
    """Return the fields by which x, reals of another stored type, becomes what the precision reads."""
    fields: ConvFields = {"converts": 1, "in_type": x.dtype}
    if precision.carries_scale:
        [inv_scale] = per_image(in_scales, images, "in_quant", "inv_scale")
        check_codes(rules.low, rules.high, precision.stored.dtype)
        fields |= {"in_inv_scale": inv_scale} | _rule_fields("in", rules)
    return fields


def output_fields(out: Values, images: int, quant: Quant, rules: CodeRules) -> ConvFields:
    """Return the fields by which the result becomes codes of out."""
    inv_scale, zero_point = per_image(
        scales_of(quant, "out_quant", written=True), images, "out_quant", "inv_scale", "zero_point"
    )
    check_codes(rules.low, rules.high, out.dtype)
    return {"out_inv_scale": inv_scale, "out_zero_point": zero_point} | _rule_fields("out", rules)


def integer_fields(integer: IntegerOutput, packed: PackedConv, out: Values) -> ConvFields:
    """Return the fields by which sums become codes of out by integers alone."""
    if out.dtype not in CODES or not packed.precision.carries_scale:
        raise KernelError("whole numbers make codes of codes, neither measured nor continued")
    channels = packed.shape.out_channels
    is_narrow = packed.precision.multiplies_bytes and out.dtype == np.int8
    check(integer.bias, "integer bias", INT if is_narrow else WIDE_INT, (channels,))
    check(integer.multiplier, "integer multiplier", INT, (channels,))
    check(integer.shift, "integer shift", INT, (channels,))
    fields: ConvFields = {"integer_bias": integer.bias, "multiplier": integer.multiplier, "shift": integer.shift}
    if integer.leaky is not None:
        low, high = integer.leaky.bounds
        fields |= {"leaky_multiplier": integer.leaky.multiplier, "leaky_shift": integer.leaky.shift}
        fields |= {"leaky_low": low, "leaky_high": high}
    return fields


def _rule_fields(side: str, rules: CodeRules) -> ConvFields:
    """Return the fields that say how codes are made. side: in or out."""
    rounding = code_of(rules.rounding, ROUNDINGS, "rounding")
    return {f"{side}_low": rules.low, f"{side}_high": rules.high, f"{side}_rounding": rounding}
