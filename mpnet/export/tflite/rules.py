# SPDX-License-Identifier: MIT
"""The readers of TensorFlow Lite files, one row per flavour, and what each can express: docs/export-tflite.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Sequence

from mpnet.engine.operations import Add, AvgPool, Map, Multiply, Normalize, Operation, Pad, Reorg3d, Shuffle
from mpnet.engine.options import LayerQuantization
from mpnet.export.basic import find_problem
from mpnet.model.network import ConvolutionSpec, LayerSpec, MaxpoolSpec
from mpnet.model.precision import FLOAT16, Precision
from mpnet.model.quantization import PER_GROUP


@dataclass(frozen=True)
class TfliteRules:
    """One flavour.

    program:        its readers, for people.
    hybrid:        whether int8 convolutions take reals, which they quantise by the image's own range, and give reals; else
                   tensors between them are int8, with calibrated ranges, and LeakyReLU rounds sums to 8 bits besides.
                   Those of int16 are of the latter kind everywhere.
    stored_halves: whether 16-bit weights lie in the file, behind a DEQUANTIZE; else as float32 values rounded to half.
    grouped:       whether a convolution may have groups, other than one per channel; else it is written group by group.
    padding_value: whether a padding by something else than zero is known (PADV2).
    wide:          whether operations beside those of Darknet's own detectors are written.
    precisions:    those it takes besides fp32, fp16 and int8.
    """

    program: str
    hybrid: bool
    stored_halves: bool
    grouped: bool
    padding_value: bool
    wide: bool
    precisions: tuple[str, ...] = ()


FLAVOURS: dict[str, TfliteRules] = {
    "litert": TfliteRules(
        "LiteRT", hybrid=True, stored_halves=True, grouped=True, padding_value=True, wide=True, precisions=("int4", "int16")
    ),
    "integer": TfliteRules(
        "LiteRT", hybrid=False, stored_halves=True, grouped=True, padding_value=True, wide=True, precisions=("int16",)
    ),
    "armnn": TfliteRules("ArmNN", hybrid=False, stored_halves=False, grouped=False, padding_value=False, wide=False),
}

MAPPED_ACTIVATIONS = ("linear", "relu", "relu6", "logistic", "swish", "mish", "tanh", "hard_sigmoid", "hard_swish", "sqrt")
"""Those that are written as operators of their own."""

COMPUTED: dict[type[Operation], Callable[[Any, Any, Sequence[int]], int]] = {
    Add: lambda writer, add, x: writer.add(x[0], x[1], add.activation),
    AvgPool: lambda writer, _, x: writer.avgpool(x[0]),
    Map: lambda writer, line, x: writer.line(x[0], line.scale, line.shift, line.activation),
    Multiply: lambda writer, product, x: writer.multiply(*(x[::-1] if product.swapped else x), product.activation),
    Normalize: lambda writer, _, x: writer.softmax(x[0]),
}
"""Operations on reals: (an operations.Writer, the operation, tensors) -> the result's tensor."""

_CALIBRATED_MODES = ("affine", "symmetric", "power_of_two", "MIN_FIRST", "SCALED")


def support(layer: LayerSpec, precision: Precision, quantization: LayerQuantization, flavour: str) -> str:
    """Return '' or why a layer cannot be expressed."""
    rules = FLAVOURS[flavour]
    if problem := find_problem(layer, "TensorFlow Lite", lambda operation: rules.wide and _is_written(operation)):
        return problem
    if isinstance(layer, MaxpoolSpec) and not rules.padding_value and find_pool_padding(layer) is None:
        return (
            f"a window of {layer.size} with a padding of {layer.padding} is neither SAME nor VALID, and {rules.program} "
            "cannot pad by another value than zero"
        )
    if precision.accumulates == FLOAT16.name:
        return "it has no sums in half in a fixed order; fp16 stores the same tensors"
    if not precision.carries_scale or not isinstance(layer, ConvolutionSpec):
        return ""
    if precision.is_narrow and rules.hybrid and layer.depthwise:
        return f"{rules.program} has no depthwise convolution of reals by weights of {precision.weight_bits} bits"
    if precision.is_narrow and quantization.narrow.granularity == PER_GROUP and layer.in_shape[2] > layer.groups:
        return (
            f"{rules.program} has no steps for groups of a convolution's input channels; set narrow.granularity to per_channel"
        )
    scheme, hybrid = quantization.codes_of(precision), rules.hybrid and precision.multiplies_bytes
    if not quantization.calibrated:
        if not hybrid:
            reason = "takes no range" if not rules.hybrid else f"has no {precision} range"
            return f"{rules.program} {reason} that is measured on the image; set quantization.activations.ranges to calibrated"
        if scheme.mode != "affine" or scheme.rounding != "half_to_even":
            return (
                f"{rules.program} measures affine ranges and rounds half to even, not {scheme.mode} and {scheme.rounding}; "
                "set quantization.activations.mode to affine"
            )
        return ""
    if scheme.mode not in _CALIBRATED_MODES:
        return f"codes of {scheme.mode} do not hit the real 0; set quantization.activations.mode to affine"
    if scheme.rounding == "truncate":
        return "QUANTIZE rounds to the nearest code, never towards zero; set quantization.activations.rounding to half_to_even"
    return ""


def _is_written(operation: Operation) -> bool:
    """Return whether an operation that not every reader knows is written."""
    if isinstance(operation, Normalize):
        return (
            operation.kind == "softmax"
            and operation.parameters in ((), (1.0,))
            and operation.groups == 1
            and (operation.tree is None)
        )
    if isinstance(operation, Pad):
        return not operation.edge
    if isinstance(operation, Reorg3d):
        return not operation.reverse
    if isinstance(operation, Shuffle):
        return True
    return type(operation) in COMPUTED and getattr(operation, "activation", "linear") in MAPPED_ACTIVATIONS


def find_pool_padding(layer: MaxpoolSpec) -> str | None:
    """Return the padding of a pooling in TensorFlow's words; None where neither fits."""
    return _find_padding_word(layer.in_shape, layer.out_shape, layer.size, layer.stride, layer.padding // 2)


def find_convolution_padding(layer: ConvolutionSpec) -> str | None:
    """Return the padding of a convolution in TensorFlow's words; None where zeros must be put around its input."""
    window = layer.dilation * (layer.size - 1) + 1
    return _find_padding_word(layer.in_shape, layer.out_shape, window, layer.stride, layer.padding)


def count_missing(
    size_before: tuple[int, ...], size_behind: tuple[int, ...], window: int, stride: int, padding: int
) -> list[int]:
    """Count the rows and columns that windows reach beyond the far sides, with a padding on the near ones."""
    return [max((size_behind[axis] - 1) * stride + window - size_before[axis] - padding, 0) for axis in (0, 1)]


def _find_padding_word(
    input_sides: tuple[int, ...], result_sides: tuple[int, ...], window: int, stride: int, padding: int
) -> str | None:
    """Return the word that gives `result_sides` windows and `padding` on the near side, on both axes; None: there is none."""
    axes = [(input_sides[axis], result_sides[axis]) for axis in (0, 1)]
    if padding == 0 and all((size - window) // stride + 1 == count for size, count in axes):
        return "VALID"
    is_same = all(
        count == -(-size // stride) and max((count - 1) * stride + window - size, 0) // 2 == padding for size, count in axes
    )
    return "SAME" if is_same else None
