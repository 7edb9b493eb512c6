# SPDX-License-Identifier: MIT
"""Operators of TensorFlow Lite in ONNX's words. Tensors of four axes become channels first; what moves values between axes goes
through channels last and back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from mpnet.importing.graph import MAX_OPERANDS, Array, Node, NodeGraph, QuantizationParameters, Refused
from mpnet.messages import shown

_FIRST, _LAST = [0, 3, 1, 2], [0, 2, 3, 1]
# Channels last -> channels first.
_AXIS = {0: 0, 1: 2, 2: 3, 3: 1}
# Of ActivationFunctionType.
_FUSED = {0: "", 1: "Relu", 2: "hardtan", 3: "Clip", 4: "Tanh"}


@dataclass
class Tensor:
    """A tensor of the file. values: of a constant. unknown: its numbers are no precision of mpnet."""

    name: str
    shape: tuple[int, ...]
    values: Array | None
    quantization: QuantizationParameters | None
    unknown: bool


class Reader:
    """A graph while it is read. words: names of operators by number. bytes_left: of constants that may still be turned into
    reals, since many operators may read one constant."""

    def __init__(self, graph: NodeGraph, schema: Any, bytes_left: int) -> None:
        self.graph, self.schema, self.bytes_left = graph, schema, bytes_left
        self.words: dict[int, str] = {
            value: word for word, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)
        }
        self.tensors: list[Tensor] = []
        self.known: set[str] = set()

    def add(self, tensor: Tensor) -> None:
        """A tensor of the file."""
        self.tensors.append(tensor)
        self.known.add(tensor.name)

    def tensor(self, number: int) -> Tensor:
        """By its number."""
        if not 0 <= number < len(self.tensors):
            raise Refused(f"reads tensor {number}, which does not exist; the file is damaged")
        return self.tensors[number]

    def name(self, number: int) -> str:
        """Of a tensor."""
        return self.tensor(number).name

    def shape(self, number: int) -> tuple[int, ...]:
        """As the file has it."""
        return self.tensor(number).shape

    def real(self, number: int) -> Array:
        """The reals of a constant. Raises: Refused when it is none."""
        tensor = self.tensor(number)
        if tensor.values is None:
            name = tensor.name
            if name in self.graph.constants:
                return self.graph.constants[name]
            raise Refused(f"its input {name!r} is computed when the model runs; only constants are possible there")
        parameters, values = tensor.quantization, tensor.values
        self.bytes_left -= values.nbytes
        if self.bytes_left < 0:
            raise Refused("reads constants that take more than the file, each time anew; the file is damaged")
        if parameters is None or np.issubdtype(values.dtype, np.floating):
            return values.astype(np.float32) if np.issubdtype(values.dtype, np.floating) else values
        sides = (
            [-1 if at == parameters.axis else 1 for at in range(values.ndim)]
            if parameters.scale.size > 1
            else [1] * values.ndim
        )
        scale, zero = (part.reshape(sides) if part.size > 1 else part for part in (parameters.scale, parameters.zero_point))
        return np.asarray((values.astype(np.int64) - zero) * scale, np.float32)

    def ints(self, number: int) -> list[int]:
        """A constant of whole numbers. Raises: Refused for one that is too long to be a shape or axes."""
        if self.real(number).size > MAX_OPERANDS:
            raise Refused(f"its input {shown(self.name(number))} has more than {MAX_OPERANDS} values; the file is damaged")
        return [int(v) for v in np.asarray(self.real(number)).ravel()]

    def weights(self, number: int, order: tuple[int, ...]) -> str:
        """A constant of weights with its axes in another order; what its integers mean is kept."""
        tensor = self.tensor(number)
        name = f"{tensor.name}/weights"
        self.graph.constants[name] = np.ascontiguousarray(self.real(number).transpose(order))
        if tensor.values is not None and tensor.quantization is not None and tensor.values.dtype == np.int8:
            self.graph.quantization[name] = tensor.quantization
            self.graph.stored_integers[name] = tensor.values.transpose(order)
        return name

    def constant(self, name: str, values: Any) -> str:
        """A constant of the reader's own."""
        self.graph.constants[name] = np.asarray(values)
        return name

    def node(self, operator: str, name: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Append a node."""
        self.graph.nodes.append(Node(operator, name, inputs, [output], attributes))
        return output

    def operand(self, number: int, rank: int) -> str:
        """An input of an operator value by value: a tensor, or a constant that broadcasts channels first."""
        tensor = self.tensor(number)
        if tensor.values is None and tensor.name not in self.graph.constants:
            return tensor.name
        values = self.real(number)
        if rank == 4 and values.ndim:
            values = values.reshape((1,) * (4 - values.ndim) + values.shape).transpose(_FIRST)
        return self.constant(f"{tensor.name}/values", values)

    def fused(self, kind: int, name: str, made: int, write: Callable[[str], object]) -> None:
        """Write an operator, and the activation that TensorFlow Lite has inside it."""
        word = _FUSED.get(kind)
        if word is None:
            raise Refused(f"its activation {kind} has no form in a cfg")
        output = self.name(made)
        if not word:
            write(output)
            return
        write(f"{output}/sums")
        limits = {"Clip": {"min": 0.0, "max": 6.0}, "hardtan": {"min": -1.0, "max": 1.0}}.get(word, {})
        self.node("Clip" if limits else word, f"{name}/activation", [f"{output}/sums"], output, **limits)

    def finish(self, inputs: list[int], outputs: list[int]) -> None:
        """Name inputs and outputs, and keep what the file says of ranges."""
        for number in inputs:
            tensor = self.tensor(number)
            shape = tensor.shape
            self.graph.inputs[tensor.name] = tuple(shape[axis] for axis in _FIRST) if len(shape) == 4 else shape
            parameters = tensor.quantization
            if parameters is not None and parameters.bits == 8 and parameters.scale.size == 1:
                # Bytes of images are the integers themselves, of int8 moved by 128.
                mean, std = int(parameters.zero_point[0]) - parameters.low, 1 / float(parameters.scale[0])
                self.graph.metadata["mpnet.pixels"] = f'{{"mean": [{mean}], "std": [{std!r}]}}'
        self.graph.outputs = [self.name(number) for number in outputs]
        for tensor in self.tensors:
            if tensor.values is None and tensor.quantization is not None and tensor.quantization.high:
                self.graph.quantization.setdefault(tensor.name, tensor.quantization)


def convert(to: Reader, word: str, name: str, given: list[int], made: list[int], options: Any) -> None:
    """Append the nodes of an operator. Raises: Refused."""
    for number in (*given, *made):
        if number >= 0 and to.tensor(number).unknown:
            raise Refused(
                "its numbers are no precision of mpnet (int16 without a scale, int4 and the like); quantise it to int8"
            )
    function = _CONVERT.get(word)
    if function is None:
        # Goes into the graph by its own name; if layers depend on it, it is refused there.
        to.graph.nodes.append(
            Node(word, name, [to.name(i) for i in given if i >= 0 and to.tensor(i).values is None], [to.name(i) for i in made])
        )
        for number in given:
            if number >= 0 and to.tensor(number).values is not None:
                to.graph.constants.setdefault(to.name(number), to.real(number))
        return
    function(to, name, given, made, options)


def _options(to: Reader, kind: str, options: Any) -> Any:
    found = getattr(to.schema, kind)()
    if options is None:
        raise Refused("its options are missing; the file is damaged")
    found.Init(options.Bytes, options.Pos)
    return found


def _folded(compute: Callable[[list[Array], Any], Any]) -> Callable[..., None]:
    """An operator on shapes, all of whose inputs are constants: its result is one."""

    def convert_folded(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
        values = np.asarray(compute([to.real(number) for number in given], options))
        if values.size > MAX_OPERANDS:
            raise Refused(f"makes a shape of {values.size} numbers; the file is damaged")
        to.tensor(made[0]).values = to.graph.constants[to.name(made[0])] = values
        to.graph.outcomes[name] = "constant"

    return convert_folded


def _shape(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
    """A shape is known: where the batch is open, it is one image."""
    shape = np.array(to.shape(given[0]), np.int32)
    to.tensor(made[0]).values = to.graph.constants[to.name(made[0])] = shape
    to.graph.outcomes[name] = "constant"


def _same(said: Any, side: str = "") -> str:
    return "SAME_UPPER" if said.Padding() == 0 else "VALID"


def _bias(to: Reader, given: list[int], at: int) -> list[str]:
    if len(given) <= at or given[at] < 0:
        return []
    return [to.constant(f"{to.name(given[at])}/bias", to.real(given[at]))]


def _conv(to: Reader, name: str, given: list[int], made: list[int], options: Any, depthwise: bool = False) -> None:
    said = _options(to, "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions", options)
    channels = to.shape(given[0])[3]
    weights = to.weights(given[1], (3, 0, 1, 2) if depthwise else (0, 3, 1, 2))
    groups = channels if depthwise else channels // to.graph.constants[weights].shape[1]
    inputs = [to.name(given[0]), weights, *_bias(to, given, 2)]
    to.fused(
        said.FusedActivationFunction(),
        name,
        made[0],
        lambda output: to.node(
            "Conv",
            name,
            inputs,
            output,
            strides=[said.StrideH(), said.StrideW()],
            auto_pad=_same(said),
            group=groups,
            dilations=[said.DilationHFactor(), said.DilationWFactor()],
        ),
    )


def _depthwise(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
    _conv(to, name, given, made, options, depthwise=True)


def _transposed(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
    said = _options(to, "TransposeConvOptions", options)
    weights = to.weights(given[1], (3, 0, 1, 2))
    size, stride = to.graph.constants[weights].shape[2], said.StrideH()
    total = (to.shape(given[2])[1] - 1) * stride + size - to.shape(made[0])[1]
    if total < 0 or total % 2 or said.StrideW() != stride:
        raise Refused("a transposed convolution with other padding on one side has no form in a cfg")
    to.node(
        "ConvTranspose",
        name,
        [to.name(given[2]), weights, *_bias(to, given, 3)],
        to.name(made[0]),
        strides=[stride] * 2,
        pads=[total // 2] * 4,
    )


def _pool(operator: str) -> Callable[..., None]:
    def convert_pool(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
        said = _options(to, "Pool2DOptions", options)
        to.fused(
            said.FusedActivationFunction(),
            name,
            made[0],
            lambda output: to.node(
                operator,
                name,
                [to.name(given[0])],
                output,
                strides=[said.StrideH(), said.StrideW()],
                auto_pad=_same(said),
                kernel_shape=[said.FilterHeight(), said.FilterWidth()],
            ),
        )

    return convert_pool


def _binary(operator: str, kind: str) -> Callable[..., None]:
    def convert_binary(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
        rank = len(to.shape(made[0]))
        inputs = [to.operand(number, rank) for number in given]
        said = 0 if options is None else _options(to, kind, options).FusedActivationFunction()
        to.fused(said, name, made[0], lambda output: to.node(operator, name, inputs, output))

    return convert_binary


def _unary(operator: str, **attributes: Any) -> Callable[..., None]:
    def convert_unary(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
        to.node(operator, name, [to.name(given[0])], to.name(made[0]), **attributes)

    return convert_unary


def _concat(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
    said = _options(to, "ConcatenationOptions", options)
    rank = len(to.shape(made[0]))
    axis = said.Axis() % rank
    axis = _AXIS[axis] if rank == 4 else axis
    to.fused(
        said.FusedActivationFunction(),
        name,
        made[0],
        lambda output: to.node("Concat", name, [to.operand(number, rank) for number in given], output, axis=axis),
    )


def _leaky(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
    to.node(
        "LeakyRelu", name, [to.name(given[0])], to.name(made[0]), alpha=float(_options(to, "LeakyReluOptions", options).Alpha())
    )


def _prelu(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
    to.node("PRelu", name, [to.name(given[0]), to.operand(given[1], 4)], to.name(made[0]))


def _mean(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
    rank = len(to.shape(given[0]))
    axes = [axis % rank for axis in to.ints(given[1])]
    keep = bool(_options(to, "ReducerOptions", options).KeepDims())
    to.node(
        "ReduceMean",
        name,
        [to.name(given[0])],
        to.name(made[0]),
        keepdims=int(keep),
        axes=[_AXIS[axis] for axis in axes] if rank == 4 else axes,
    )


def _moved(to: Reader, name: str, x: int, made: int, write: Callable[[str, str], object]) -> None:
    """Write something that moves values, between channels last before and channels first behind it."""
    given, output = to.name(x), to.name(made)
    if len(to.shape(x)) == 4 and to.tensor(x).values is None:
        given = to.node("Transpose", f"{name}/last", [given], f"{name}/last", perm=_LAST)
    inside = f"{name}/moved" if len(to.shape(made)) == 4 else output
    write(given, inside)
    if inside != output:
        to.node("Transpose", f"{name}/first", [inside], output, perm=_FIRST)


def _reshape(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
    before, after = to.shape(given[0]), to.shape(made[0])
    plain = (len(before) == 4 and before[1:3] == (1, 1)) or len(before) != 4
    if plain and (len(after) != 4 or after[1:3] == (1, 1)):
        first = tuple(after[axis] for axis in _FIRST) if len(after) == 4 else after
        to.node("Reshape", name, [to.name(given[0]), to.constant(f"{name}/shape", np.array(first, np.int64))], to.name(made[0]))
        return
    shape = to.constant(f"{name}/shape", np.array(after, np.int64))
    _moved(to, name, given[0], made[0], lambda x, output: to.node("Reshape", name, [x, shape], output))


def _dense(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
    said = _options(to, "FullyConnectedOptions", options)
    x, shape = to.name(given[0]), to.shape(given[0])
    if len(shape) == 4:
        if shape[1:3] != (1, 1):
            raise Refused("reads values of many pixels as one row; average them first")
        x = to.node(
            "Reshape", f"{name}/row", [x, to.constant(f"{name}/row shape", np.array([1, shape[3]], np.int64))], f"{name}/row"
        )
    after = to.shape(made[0])
    if len(after) not in (2, 4):
        raise Refused(f"its result has the shape {list(after)}")
    weights = to.weights(given[1], (0, 1))

    def write(output: str) -> None:
        inside = output if len(after) == 2 else f"{output}/row"
        to.node("Gemm", name, [x, weights, *_bias(to, given, 2)], inside, transB=1)
        if inside != output:
            pixel = to.constant(f"{name}/pixel", np.array([1, after[3], 1, 1], np.int64))
            to.node("Reshape", f"{name}/pixel", [inside, pixel], output)

    to.fused(said.FusedActivationFunction(), name, made[0], write)


def _softmax(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
    if _options(to, "SoftmaxOptions", options).Beta() != 1:
        raise Refused("a softmax with beta has no form in a cfg")
    rank = len(to.shape(given[0]))
    to.node("Softmax", name, [to.name(given[0])], to.name(made[0]), axis=1 if rank == 4 else rank - 1)


def _resize(kind: str) -> Callable[..., None]:
    def convert_resize(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
        said = _options(to, f"Resize{kind}Options", options)
        n, h, w, c = to.shape(made[0])
        sizes = to.constant(f"{name}/sizes", np.array([n, c, h, w], np.int64))
        # (x + 0.5) / factor, cut off, is x / factor, cut off.
        mode = "align_corners" if said.AlignCorners() else "asymmetric"
        if kind == "Bilinear" and said.HalfPixelCenters():
            mode = "half_pixel"
        to.node(
            "Resize",
            name,
            [to.name(given[0]), "", "", sizes],
            to.name(made[0]),
            nearest_mode="floor",
            mode="nearest" if kind == "NearestNeighbor" else "linear",
            coordinate_transformation_mode=mode,
        )

    return convert_resize


def _tile(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
    if len(to.shape(given[0])) == 4:
        raise Refused("repeats a whole image or its channels")
    times = to.constant(f"{name}/times", np.array(to.ints(given[1]), np.int64))
    to.node("Tile", name, [to.name(given[0]), times], to.name(made[0]))


def _pad(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
    pads = np.array(to.ints(given[1])).reshape(-1, 2)
    pads = pads[_FIRST] if len(pads) == 4 else pads
    value = float(to.real(given[2]).ravel()[0]) if len(given) > 2 else 0.0
    to.node("Pad", name, [to.name(given[0])], to.name(made[0]), pads=[int(v) for v in pads.T.ravel()], value=value)


def _split(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
    x, axis = (given[1], given[0]) if len(given) == 2 else (given[0], given[2])
    rank = len(to.shape(x))
    at = to.ints(axis)[0] % rank
    parts = [to.shape(number)[at] for number in made]
    to.graph.nodes.append(
        Node("Split", name, [to.name(x)], [to.name(i) for i in made], {"axis": _AXIS[at] if rank == 4 else at, "split": parts})
    )


def _slice(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
    starts, sizes = to.ints(given[1]), to.ints(given[2])
    whole = to.shape(given[0])
    ends = [side if size == -1 else start + size for start, size, side in zip(starts, sizes, whole, strict=True)]
    _sliced(to, name, given[0], made[0], starts, ends, [1] * len(whole))


def _strided(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
    said = _options(to, "StridedSliceOptions", options)
    if len(to.shape(given[0])) == 1 and to.tensor(given[0]).values is not None and not said.BeginMask() and not said.EndMask():
        # A side of a shape, or some of them.
        values, (start, end, step) = to.real(given[0]), (to.ints(number)[0] for number in given[1:4])
        part = values[start : start + 1][0] if said.ShrinkAxisMask() else values[start:end:step]
        to.tensor(made[0]).values = to.graph.constants[to.name(made[0])] = np.asarray(part)
        to.graph.outcomes[name] = "constant"
        return
    if said.EllipsisMask() or said.NewAxisMask() or said.ShrinkAxisMask():
        raise Refused("takes away or adds axes; no layer does that")
    starts, ends, steps = (to.ints(number) for number in given[1:4])
    whole = to.shape(given[0])
    starts = [0 if said.BeginMask() >> at & 1 else start for at, start in enumerate(starts)]
    ends = [whole[at] if said.EndMask() >> at & 1 else end for at, end in enumerate(ends)]
    _sliced(to, name, given[0], made[0], starts, ends, steps)


def _sliced(to: Reader, name: str, x: int, made: int, starts: list[int], ends: list[int], steps: list[int]) -> None:
    rank = len(to.shape(x))
    axes = [_AXIS[axis] if rank == 4 else axis for axis in range(len(starts))]
    rows = [
        to.constant(f"{name}/{what}", np.array(values, np.int64))
        for what, values in (("starts", starts), ("ends", ends), ("axes", axes), ("steps", steps))
    ]
    to.node("Slice", name, [to.name(x), *rows], to.name(made))


def _transpose(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
    order = to.ints(given[1])
    _moved(to, name, given[0], made[0], lambda x, output: to.node("Transpose", name, [x], output, perm=order))


def _dequantize(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
    if to.tensor(given[0]).values is not None:
        to.graph.constants[to.name(made[0])] = to.real(given[0])
        to.graph.outcomes[name] = "constant"
        return
    parameters = to.tensor(made[0]).quantization
    if parameters is not None and parameters.high:
        to.graph.quantization.setdefault(to.name(given[0]), parameters)
    to.node("Identity", name, [to.name(given[0])], to.name(made[0]))


def _space_to_depth(to: Reader, name: str, given: list[int], made: list[int], options: Any) -> None:
    to.node(
        "SpaceToDepth",
        name,
        [to.name(given[0])],
        to.name(made[0]),
        blocksize=int(_options(to, "SpaceToDepthOptions", options).BlockSize()),
    )


_CONVERT: dict[str, Callable[..., None]] = {
    "CONV_2D": _conv,
    "DEPTHWISE_CONV_2D": _depthwise,
    "TRANSPOSE_CONV": _transposed,
    "MAX_POOL_2D": _pool("MaxPool"),
    "AVERAGE_POOL_2D": _pool("AveragePool"),
    "ADD": _binary("Add", "AddOptions"),
    "SUB": _binary("Sub", "SubOptions"),
    "MUL": _binary("Mul", "MulOptions"),
    "DIV": _binary("Div", "DivOptions"),
    "CONCATENATION": _concat,
    "RELU": _unary("Relu"),
    "RELU6": _unary("Clip", min=0.0, max=6.0),
    "RELU_N1_TO_1": _unary("Clip", min=-1.0, max=1.0),
    "LEAKY_RELU": _leaky,
    "PRELU": _prelu,
    "LOGISTIC": _unary("Sigmoid"),
    "TANH": _unary("Tanh"),
    "HARD_SWISH": _unary("HardSwish"),
    "ELU": _unary("Elu"),
    "EXP": _unary("Exp"),
    "MEAN": _mean,
    "RESHAPE": _reshape,
    "SQUEEZE": _reshape,
    "EXPAND_DIMS": _reshape,
    "FULLY_CONNECTED": _dense,
    "SOFTMAX": _softmax,
    "RESIZE_NEAREST_NEIGHBOR": _resize("NearestNeighbor"),
    "RESIZE_BILINEAR": _resize("Bilinear"),
    "PAD": _pad,
    "PADV2": _pad,
    "SPLIT": _split,
    "SPLIT_V": _split,
    "SLICE": _slice,
    "STRIDED_SLICE": _strided,
    "TRANSPOSE": _transpose,
    "DEQUANTIZE": _dequantize,
    "QUANTIZE": _dequantize,
    "SPACE_TO_DEPTH": _space_to_depth,
    "TILE": _tile,
    "SHAPE": _shape,
    "DENSIFY": _dequantize,
    "PACK": _folded(lambda values, options: np.stack(values)),
}
