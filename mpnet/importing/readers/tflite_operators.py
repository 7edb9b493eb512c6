# SPDX-License-Identifier: MIT
"""Operators of TensorFlow Lite in ONNX's words. What moves values between axes goes through channels last and back."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
from numpy.typing import ArrayLike

from mpnet.importing.graph import MAX_OPERANDS, Array, Node, Refused
from mpnet.importing.readers.tflite_detection import convert_detection, convert_suppression
from mpnet.importing.readers.tflite_graph import CHANNELS_FIRST, CHANNELS_LAST, TfliteOperator

# Channels last -> channels first.
_AXIS = {0: 0, 1: 2, 2: 3, 3: 1}


Converter = Callable[[TfliteOperator], None]


def convert(word: str, operator: TfliteOperator) -> None:
    """Append the nodes of an operator. word: its name in TensorFlow Lite. Raises: Refused."""
    builder = operator.builder
    for number in (*operator.inputs, *operator.outputs):
        if number >= 0 and builder.tensor(number).unsupported:
            raise Refused(
                "its numbers are no precision of mpnet (int16 without a scale, int4 and the like); quantise it to int8"
            )
    converter = _CONVERTERS.get(word)
    if converter is not None:
        converter(operator)
        return
    # Goes into the graph by its own name; if layers depend on it, it is refused there.
    inputs = [builder.name(number) for number in operator.inputs if number >= 0 and builder.tensor(number).values is None]
    builder.graph.nodes.append(Node(word, operator.name, inputs, [builder.name(number) for number in operator.outputs]))
    for number in operator.inputs:
        if number >= 0 and builder.tensor(number).values is not None:
            builder.graph.constants.setdefault(builder.name(number), builder.real(number))


def _folding(compute: Callable[[list[Array]], ArrayLike]) -> Converter:
    """Return the converter of an operator on shapes, all of whose inputs are constants: its result is one."""

    def convert_folded(operator: TfliteOperator) -> None:
        values = np.asarray(compute([operator.builder.real(number) for number in operator.inputs]))
        if values.size > MAX_OPERANDS:
            raise Refused(f"makes a shape of {values.size} numbers; the file is damaged")
        operator.become_constant(values)

    return convert_folded


def _convert_shape(operator: TfliteOperator) -> None:
    """Make the shape a constant: where the batch is open, it is one image."""
    operator.become_constant(np.array(operator.shape, np.int32))


def _auto_pad(options: Any) -> str:
    return "SAME_UPPER" if options.Padding() == 0 else "VALID"


def _biases(operator: TfliteOperator, index: int) -> list[str]:
    """Return the names of the biases, [] where input `index` is left out."""
    if len(operator.inputs) <= index or operator.inputs[index] < 0:
        return []
    builder, number = operator.builder, operator.inputs[index]
    return [builder.constant(f"{builder.name(number)}/bias", builder.real(number))]


def _convert_convolution(operator: TfliteOperator, depthwise: bool = False) -> None:
    builder = operator.builder
    options = operator.options("DepthwiseConv2DOptions" if depthwise else "Conv2DOptions")
    channels = operator.shape[3]
    weights = builder.weights(operator.inputs[1], (3, 0, 1, 2) if depthwise else (0, 3, 1, 2))
    groups = channels if depthwise else channels // builder.graph.constants[weights].shape[1]
    inputs = [operator.input, weights, *_biases(operator, 2)]
    builder.activate(
        options.FusedActivationFunction(),
        operator.name,
        operator.output,
        lambda output: operator.append(
            "Conv",
            inputs,
            output,
            strides=[options.StrideH(), options.StrideW()],
            auto_pad=_auto_pad(options),
            group=groups,
            dilations=[options.DilationHFactor(), options.DilationWFactor()],
        ),
    )


def _convert_depthwise(operator: TfliteOperator) -> None:
    _convert_convolution(operator, depthwise=True)


def _convert_transposed(operator: TfliteOperator) -> None:
    builder, options = operator.builder, operator.options("TransposeConvOptions")
    weights = builder.weights(operator.inputs[1], (3, 0, 1, 2))
    size, stride = builder.graph.constants[weights].shape[2], options.StrideH()
    total = (builder.shape(operator.inputs[2])[1] - 1) * stride + size - operator.result_shape[1]
    if total < 0 or total % 2 or options.StrideW() != stride:
        raise Refused("a transposed convolution with other padding on one side has no form in a cfg")
    inputs = [builder.name(operator.inputs[2]), weights, *_biases(operator, 3)]
    operator.append("ConvTranspose", inputs, operator.output, strides=[stride] * 2, pads=[total // 2] * 4)


def _pooling(kind: str) -> Converter:
    def convert_pooling(operator: TfliteOperator) -> None:
        options = operator.options("Pool2DOptions")
        operator.builder.activate(
            options.FusedActivationFunction(),
            operator.name,
            operator.output,
            lambda output: operator.append(
                kind,
                [operator.input],
                output,
                strides=[options.StrideH(), options.StrideW()],
                auto_pad=_auto_pad(options),
                kernel_shape=[options.FilterHeight(), options.FilterWidth()],
            ),
        )

    return convert_pooling


def _binary(kind: str, options_kind: str) -> Converter:
    def convert_binary(operator: TfliteOperator) -> None:
        builder, rank = operator.builder, len(operator.result_shape)
        inputs = [builder.operand(number, rank) for number in operator.inputs]
        activation = 0 if operator.table is None else operator.options(options_kind).FusedActivationFunction()
        builder.activate(activation, operator.name, operator.output, lambda output: operator.append(kind, inputs, output))

    return convert_binary


def _unary(kind: str, **attributes: object) -> Converter:
    def convert_unary(operator: TfliteOperator) -> None:
        operator.append(kind, [operator.input], operator.output, **attributes)

    return convert_unary


def _convert_concat(operator: TfliteOperator) -> None:
    builder, options = operator.builder, operator.options("ConcatenationOptions")
    rank = len(operator.result_shape)
    axis = options.Axis() % rank
    axis = _AXIS[axis] if rank == 4 else axis
    builder.activate(
        options.FusedActivationFunction(),
        operator.name,
        operator.output,
        lambda output: operator.append(
            "Concat", [builder.operand(number, rank) for number in operator.inputs], output, axis=axis
        ),
    )


def _convert_leaky(operator: TfliteOperator) -> None:
    slope = float(operator.options("LeakyReluOptions").Alpha())
    operator.append("LeakyRelu", [operator.input], operator.output, alpha=slope)


def _convert_prelu(operator: TfliteOperator) -> None:
    operator.append("PRelu", [operator.input, operator.builder.operand(operator.inputs[1], 4)], operator.output)


def _convert_mean(operator: TfliteOperator) -> None:
    rank = len(operator.shape)
    axes = [axis % rank for axis in operator.builder.integers(operator.inputs[1])]
    keep = bool(operator.options("ReducerOptions").KeepDims())
    axes = [_AXIS[axis] for axis in axes] if rank == 4 else axes
    operator.append("ReduceMean", [operator.input], operator.output, keepdims=int(keep), axes=axes)


def _move(operator: TfliteOperator, number: int, write: Callable[[str, str], object]) -> None:
    """Write something that moves values, between channels last before and channels first behind it.

    number: of the tensor whose values are moved. write: appends the node, of the names of its input and its result.
    """
    builder, name = operator.builder, operator.name
    x, output = builder.name(number), operator.output
    if len(builder.shape(number)) == 4 and builder.tensor(number).values is None:
        x = builder.node("Transpose", f"{name}/last", [x], f"{name}/last", perm=CHANNELS_LAST)
    result = f"{name}/moved" if len(operator.result_shape) == 4 else output
    write(x, result)
    if result != output:
        builder.node("Transpose", f"{name}/first", [result], output, perm=CHANNELS_FIRST)


def _convert_reshape(operator: TfliteOperator) -> None:
    shape, result = operator.shape, operator.result_shape
    plain = (len(shape) == 4 and shape[1:3] == (1, 1)) or len(shape) != 4
    if plain and (len(result) != 4 or result[1:3] == (1, 1)):
        channels_first = tuple(result[axis] for axis in CHANNELS_FIRST) if len(result) == 4 else result
        operator.append("Reshape", [operator.input, operator.constant("shape", channels_first)], operator.output)
        return
    shape_name = operator.constant("shape", result)
    _move(operator, operator.inputs[0], lambda x, output: operator.append("Reshape", [x, shape_name], output))


def _convert_dense(operator: TfliteOperator) -> None:
    builder, name, options = operator.builder, operator.name, operator.options("FullyConnectedOptions")
    x, shape = operator.input, operator.shape
    if len(shape) == 4:
        if shape[1:3] != (1, 1):
            raise Refused("reads values of many pixels as one row; average them first")
        x = builder.node("Reshape", f"{name}/row", [x, operator.constant("row shape", [1, shape[3]])], f"{name}/row")
    result = operator.result_shape
    if len(result) not in (2, 4):
        raise Refused(f"its result has the shape {list(result)}")
    weights = builder.weights(operator.inputs[1], (0, 1))

    def write(output: str) -> None:
        row = output if len(result) == 2 else f"{output}/row"
        operator.append("Gemm", [x, weights, *_biases(operator, 2)], row, transB=1)
        if row != output:
            pixel = operator.constant("pixel", [1, result[3], 1, 1])
            builder.node("Reshape", f"{name}/pixel", [row, pixel], output)

    builder.activate(options.FusedActivationFunction(), name, operator.output, write)


def _convert_softmax(operator: TfliteOperator) -> None:
    if operator.options("SoftmaxOptions").Beta() != 1:
        raise Refused("a softmax with beta has no form in a cfg")
    rank = len(operator.shape)
    operator.append("Softmax", [operator.input], operator.output, axis=1 if rank == 4 else rank - 1)


def _resizing(kind: str) -> Converter:
    def convert_resizing(operator: TfliteOperator) -> None:
        options = operator.options(f"Resize{kind}Options")
        n, h, w, c = operator.result_shape
        sizes = operator.constant("sizes", [n, c, h, w])
        mode = "align_corners" if options.AlignCorners() else "asymmetric"
        # (x + 0.5) / factor, cut off, is x / factor, cut off, for whole factors.
        is_multiple = h % operator.shape[1] == 0 and w % operator.shape[2] == 0
        if options.HalfPixelCenters() and not (kind == "NearestNeighbor" and is_multiple):
            mode = "half_pixel" if kind == "Bilinear" else "tf_half_pixel_for_nn"
        operator.append(
            "Resize",
            [operator.input, "", "", sizes],
            operator.output,
            nearest_mode="floor",
            mode="nearest" if kind == "NearestNeighbor" else "linear",
            coordinate_transformation_mode=mode,
        )

    return convert_resizing


def _convert_tile(operator: TfliteOperator) -> None:
    if len(operator.shape) == 4:
        raise Refused("repeats a whole image or its channels")
    times = operator.constant("times", operator.builder.integers(operator.inputs[1]))
    operator.append("Tile", [operator.input, times], operator.output)


def _convert_pad(operator: TfliteOperator) -> None:
    builder, inputs = operator.builder, operator.inputs
    pads = np.array(builder.integers(inputs[1])).reshape(-1, 2)
    pads = pads[CHANNELS_FIRST] if len(pads) == 4 else pads
    value = float(builder.real(inputs[2]).ravel()[0]) if len(inputs) > 2 else 0.0
    operator.append("Pad", [operator.input], operator.output, pads=[int(v) for v in pads.T.ravel()], value=value)


def _convert_split(operator: TfliteOperator) -> None:
    builder, inputs = operator.builder, operator.inputs
    x, axis_number = (inputs[1], inputs[0]) if len(inputs) == 2 else (inputs[0], inputs[2])
    rank = len(builder.shape(x))
    axis = builder.integers(axis_number)[0] % rank
    lengths = [builder.shape(number)[axis] for number in operator.outputs]
    attributes = {"axis": _AXIS[axis] if rank == 4 else axis, "split": lengths}
    outputs = [builder.name(number) for number in operator.outputs]
    builder.graph.nodes.append(Node("Split", operator.name, [builder.name(x)], outputs, attributes))


def _convert_slice(operator: TfliteOperator) -> None:
    builder = operator.builder
    starts, sizes = builder.integers(operator.inputs[1]), builder.integers(operator.inputs[2])
    shape = operator.shape
    ends = [side if size == -1 else start + size for start, size, side in zip(starts, sizes, shape, strict=True)]
    _append_slice(operator, starts, ends, [1] * len(shape))


def _convert_strided_slice(operator: TfliteOperator) -> None:
    builder, inputs, options = operator.builder, operator.inputs, operator.options("StridedSliceOptions")
    constant = len(operator.shape) == 1 and builder.tensor(inputs[0]).values is not None
    if constant and not options.BeginMask() and not options.EndMask():
        # A side of a shape, or some of them.
        values, (start, end, step) = builder.real(inputs[0]), (builder.integers(number)[0] for number in inputs[1:4])
        sides = values[start : start + 1][0] if options.ShrinkAxisMask() else values[start:end:step]
        operator.become_constant(np.asarray(sides))
        return
    if options.EllipsisMask() or options.NewAxisMask() or options.ShrinkAxisMask():
        raise Refused("takes away or adds axes; no layer does that")
    starts, ends, steps = (builder.integers(number) for number in inputs[1:4])
    shape = operator.shape
    starts = [0 if options.BeginMask() >> axis & 1 else start for axis, start in enumerate(starts)]
    ends = [shape[axis] if options.EndMask() >> axis & 1 else end for axis, end in enumerate(ends)]
    _append_slice(operator, starts, ends, steps)


def _append_slice(operator: TfliteOperator, starts: list[int], ends: list[int], steps: list[int]) -> None:
    rank = len(operator.shape)
    axes = [_AXIS[axis] if rank == 4 else axis for axis in range(len(starts))]
    bounds = (("starts", starts), ("ends", ends), ("axes", axes), ("steps", steps))
    operator.append("Slice", [operator.input, *[operator.constant(*bound) for bound in bounds]], operator.output)


def _convert_transpose(operator: TfliteOperator) -> None:
    order = operator.builder.integers(operator.inputs[1])
    _move(operator, operator.inputs[0], lambda x, output: operator.append("Transpose", [x], output, perm=order))


def _convert_dequantize(operator: TfliteOperator) -> None:
    builder = operator.builder
    if builder.tensor(operator.inputs[0]).values is not None:
        builder.graph.constants[operator.output] = builder.real(operator.inputs[0])
        builder.graph.outcomes[operator.name] = "constant"
        return
    parameters = builder.tensor(operator.outputs[0]).quantization
    if parameters is not None and parameters.high:
        builder.graph.quantization.setdefault(operator.input, parameters)
    operator.append("Identity", [operator.input], operator.output)


def _convert_space_to_depth(operator: TfliteOperator) -> None:
    block = int(operator.options("SpaceToDepthOptions").BlockSize())
    operator.append("SpaceToDepth", [operator.input], operator.output, blocksize=block)


_CONVERTERS: dict[str, Converter] = {
    "CONV_2D": _convert_convolution,
    "DEPTHWISE_CONV_2D": _convert_depthwise,
    "TRANSPOSE_CONV": _convert_transposed,
    "MAX_POOL_2D": _pooling("MaxPool"),
    "AVERAGE_POOL_2D": _pooling("AveragePool"),
    "ADD": _binary("Add", "AddOptions"),
    "SUB": _binary("Sub", "SubOptions"),
    "MUL": _binary("Mul", "MulOptions"),
    "DIV": _binary("Div", "DivOptions"),
    "CONCATENATION": _convert_concat,
    "RELU": _unary("Relu"),
    "RELU6": _unary("Clip", min=0.0, max=6.0),
    "RELU_N1_TO_1": _unary("Clip", min=-1.0, max=1.0),
    "LEAKY_RELU": _convert_leaky,
    "PRELU": _convert_prelu,
    "LOGISTIC": _unary("Sigmoid"),
    "TANH": _unary("Tanh"),
    "HARD_SWISH": _unary("HardSwish"),
    "ELU": _unary("Elu"),
    "EXP": _unary("Exp"),
    "SQRT": _unary("Sqrt"),
    "MEAN": _convert_mean,
    "RESHAPE": _convert_reshape,
    "SQUEEZE": _convert_reshape,
    "EXPAND_DIMS": _convert_reshape,
    "FULLY_CONNECTED": _convert_dense,
    "SOFTMAX": _convert_softmax,
    "RESIZE_NEAREST_NEIGHBOR": _resizing("NearestNeighbor"),
    "RESIZE_BILINEAR": _resizing("Bilinear"),
    "PAD": _convert_pad,
    "PADV2": _convert_pad,
    "SPLIT": _convert_split,
    "SPLIT_V": _convert_split,
    "SLICE": _convert_slice,
    "STRIDED_SLICE": _convert_strided_slice,
    "TRANSPOSE": _convert_transpose,
    "DEQUANTIZE": _convert_dequantize,
    "QUANTIZE": _convert_dequantize,
    "SPACE_TO_DEPTH": _convert_space_to_depth,
    "TILE": _convert_tile,
    "NON_MAX_SUPPRESSION_V4": convert_suppression,
    "NON_MAX_SUPPRESSION_V5": convert_suppression,
    "TFLite_Detection_PostProcess": convert_detection,
    "SHAPE": _convert_shape,
    "DENSIFY": _convert_dequantize,
    "PACK": _folding(np.stack),
}
