# SPDX-License-Identifier: MIT
"""Operators that compute every value by itself: arithmetic, activations, scales per channel."""

from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np

from mpnet.importing.graph import Array, Refused
from mpnet.importing.operators.record import ANY, Call, Lifter, Operator, Shape
from mpnet.quantization import elementary

_SIXTH = 1 / 6
_SLOW = 8
"""How many additions an exponential and the like take."""

# Of onnx.TensorProto.
_DTYPES: dict[int, Any] = {
    1: np.float32,
    2: np.uint8,
    3: np.int8,
    4: np.uint16,
    5: np.int16,
    6: np.int32,
    7: np.int64,
    9: np.bool_,
    10: np.float16,
    11: np.float64,
    12: np.uint32,
    13: np.uint64,
}


def _same(call: Call) -> Shape:
    return call.shape()


def _broadcast(call: Call) -> Shape:
    return np.broadcast_shapes(*[call.shape(at) for at in range(len(call.arrays))])


def _unary(function: Callable[[Array], Any], work: int = 1, **more: Any) -> Operator:
    return Operator(_same, lambda call: np.asarray(function(call.array(0))), work=work, **more)


def _joined(function: Callable[..., Any], inputs: tuple[int, int], work: int = 1, **more: Any) -> Operator:
    def computed(call: Call) -> Array:
        return np.asarray(function(*[call.array(at) for at in range(len(call.arrays))]))

    return Operator(_broadcast, computed, work=work, inputs=inputs, **more)


def _binary(function: Callable[..., Any], work: int = 1, **more: Any) -> Operator:
    return _joined(function, (2, 2), work, **more)


def _elementary(function: Callable[..., Any]) -> Callable[..., Array]:
    """A function of float64 whose bits no CPU decides, for arrays of any type; the result has the first one's."""
    return lambda *arrays: np.asarray(function(*[np.asarray(x, np.float64) for x in arrays])).astype(arrays[0].dtype)


def _power(x: Array, exponent: Array) -> Array:
    if np.issubdtype(x.dtype, np.integer) and np.issubdtype(exponent.dtype, np.integer) and not (exponent < 0).any():
        return np.asarray(np.power(x, exponent))
    return _elementary(elementary.power)(x, exponent)


def _quotient(a: Array, b: Array) -> Array:
    if np.issubdtype(a.dtype, np.integer):
        return np.asarray((np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype))
    return np.asarray(a / b)


def _clip(call: Call) -> Array:
    low, high = _limits(call)
    return np.asarray(np.clip(call.array(0), low, high)).astype(call.array(0).dtype)


def _limits(call: Call) -> tuple[float, float]:
    return call.number("min", -np.inf, 1), call.number("max", np.inf, 2)


def _cast(call: Call) -> Array:
    kind = call.integer("to")
    if kind not in _DTYPES:
        raise Refused(f"the type {kind} is no type that mpnet computes with")
    return call.array(0).astype(_DTYPES[kind])


def _softmax(call: Call) -> Array:
    x, axis = call.array(0), call.axis(-1)
    parts = _elementary(elementary.exp)(x - x.max(axis=axis, keepdims=True))
    return np.asarray(parts / parts.sum(axis=axis, keepdims=True))


def _dequantize(call: Call) -> Array:
    x, scale, zero = call.array(0), call.array(1).astype(np.float32), call.constant(2)
    zero = np.zeros_like(scale, np.int64) if zero is None else zero
    if scale.size > 1:
        axis = call.integer("axis", 1) % x.ndim
        sides = [-1 if at == axis else 1 for at in range(x.ndim)]
        scale, zero = scale.reshape(sides), zero.reshape(sides)
    return ((x.astype(np.int64) - zero.astype(np.int64)).astype(np.float32) * scale).astype(np.float32)


def _activation(word: str) -> Callable[[Lifter, Call], object]:
    return lambda to, call: to.apply(call, "activation", word=word)


def _leaky(to: Lifter, call: Call) -> None:
    _slopes(to, call, np.array([call.number("alpha", 0.01)], np.float32))


def _prelu(to: Lifter, call: Call) -> None:
    slopes = call.array(1)
    if slopes.size not in (1, to.result(call)[0]):
        raise Refused("its slopes differ by pixel; one per channel is possible")
    _slopes(to, call, np.asarray(slopes, np.float32).ravel())


def _slopes(to: Lifter, call: Call, slopes: Array) -> None:
    words = {0.0: "relu", round(0.1, 6): "leaky", round(0.01, 6): "relie"}
    word = words.get(round(float(slopes[0]), 6)) if (slopes == slopes[0]).all() else None
    if word is not None:
        to.apply(call, "activation", word=word)
    else:
        to.apply(call, "prelu", slopes=np.broadcast_to(slopes, to.result(call)[0]))


def _clamp(to: Lifter, call: Call) -> None:
    """Values kept between two limits."""
    low, high = _limits(call)
    word = {(0.0, 6.0): "relu6", (-1.0, 1.0): "hardtan"}.get((low, high))
    if low == 0 and high > 1e30:
        word = "relu"
    if word is not None:
        to.apply(call, "activation", word=word)
        return
    if not (np.isfinite(low) and np.isfinite(high) and high > low):
        raise Refused(f"a clamp to [{low:g}, {high:g}] has no form in a cfg")
    # By relu6, between two lines.
    shape, factor, output = to.result(call), 6 / (high - low), call.node.output
    x = to.line(call, call.node.inputs[0], shape, f"{output}/line", factor, -low * factor)
    x = to.add(call, "activation", [x], shape, f"{output}/relu6", word="relu6")
    to.line(call, x, shape, output, 1 / factor, low)


def _hard_sigmoid(to: Lifter, call: Call) -> None:
    slope, middle = call.number("alpha", 0.2), call.number("beta", 0.5)
    x, shape = call.node.inputs[0], to.result(call)
    if abs(slope - _SIXTH) > 1e-6 or middle != 0.5:
        x = to.line(call, x, shape, f"{call.node.output}/line", 6 * slope, 6 * middle - 3)
    to.add(call, "activation", [x], shape, word="hard_sigmoid")


def _elu(to: Lifter, call: Call) -> None:
    if call.number("alpha", 1.0) != 1.0:
        raise Refused("alpha must be 1")
    to.apply(call, "activation", word="elu")


def _batch_norm_shapes(call: Call) -> list[Shape]:
    """In training it gives the running mean and variance as well."""
    return [call.shape(), *[call.shape(1)] * (len(call.node.outputs) - 1)]


def _normalized(call: Call) -> list[Array]:
    """Of constants: weights that are normalised when the model runs, which programs write as a batch norm in training."""
    x, scale, shift, mean, variance = (call.array(at).astype(np.float64) for at in range(5))
    axes = tuple(at for at in range(x.ndim) if at != 1)
    if call.integer("training_mode", 0):
        mean, variance = x.mean(axes), x.var(axes)
    sides = [-1 if at == 1 else 1 for at in range(x.ndim)]
    factor = (scale / np.sqrt(variance + call.number("epsilon", 1e-5))).reshape(sides)
    result = ((x - mean.reshape(sides)) * factor + shift.reshape(sides)).astype(np.float32)
    return [result, *[mean.astype(np.float32), variance.astype(np.float32)][: len(call.node.outputs) - 1]]


def _batch_norm(to: Lifter, call: Call) -> None:
    channels = to.result(call)[0]
    parts = [call.array(at) for at in range(1, 5)]
    if any(part.size != channels for part in parts):
        raise Refused(f"its constants do not fit {channels} channels; the file is damaged")
    scale, shift, mean, variance = (part.astype(np.float64).ravel() for part in parts)
    factor = scale / np.sqrt(variance + call.number("epsilon", 1e-5))
    to.apply(call, "affine", scale=factor, shift=shift - mean * factor)


def _gelu(to: Lifter, call: Call) -> None:
    to.apply(call, "activation", word="gelu" if call.text("approximate", "none", ("none", "tanh")) == "tanh" else "gelu_erf")


def _layer_norm(to: Lifter, call: Call) -> None:
    to.apply(call, "layernorm", epsilon=f"{call.number('epsilon', 1e-5):.9g}", whole=call.integer("whole", 0) or None)


def _sum(to: Lifter, call: Call) -> None:
    node = call.node
    constants = [at for at, name in enumerate(node.inputs) if name in to.graph.constants]
    if len(node.inputs) == 1:
        raise Refused("a sum of one tensor")
    if constants:
        return _line(to, call, constants[0])
    shapes = {to.chw(call, at) for at in range(len(node.inputs))}
    if len(shapes) > 1:
        raise Refused(f"adds tensors of different shapes {sorted(shapes)}")
    x, result = node.inputs[0], to.result(call)
    if node.operator == "Sub":
        minus = to.line(call, node.inputs[1], result, f"{node.output}/minus", -1.0, 0.0)
        to.add(call, "add", [x, minus], result)
        return None
    for number, other in enumerate(node.inputs[1:], 1):
        last = number == len(node.inputs) - 1
        x = to.add(call, "add", [x, other], result, node.output if last else f"{node.output}/{number}")
    return None


def _line(to: Lifter, call: Call, at: int) -> None:
    """A sum, difference, product or quotient with the constant input `at`, which has a value per channel."""
    if len(call.node.inputs) != 2:
        raise Refused("joins more than two tensors and constants; export it as several nodes")
    value, shape = call.array(at).astype(np.float64), to.chw(call, 1 - at)
    rank = len(call.shape(1 - at))
    sides = (1,) * (rank - value.ndim) + value.shape
    if call.node.operator == "Add" and sides == (1, *shape) and math.prod(shape[1:]) > 1:
        to.apply(call, "offset", offset=call.array(at).astype(np.float32).reshape(shape))
        return
    if len(sides) != rank or any(side != 1 for axis, side in enumerate(sides) if axis != 1):
        raise Refused("its constant differs by pixel; one value per channel is possible")
    if value.size not in (1, shape[0]) or to.result(call) != shape:
        raise Refused("its constant does not fit the tensor's channels")
    per_channel, x = value.ravel(), call.node.inputs[1 - at]
    match call.node.operator:
        case "Mul":
            scale, shift = per_channel, np.zeros(1)
        case "Sub":
            scale, shift = (np.ones(1), -per_channel) if at == 1 else (-np.ones(1), per_channel)
        case "Div" if at == 0:
            raise Refused("a constant divided by a tensor has no form in a cfg")
        case "Div":
            scale, shift = 1 / per_channel, np.zeros(1)
        case _:
            scale, shift = np.ones(1), per_channel
    to.line(call, x, shape, call.node.output, scale, shift)


def _product(to: Lifter, call: Call) -> None:
    constants = [at for at, name in enumerate(call.node.inputs) if name in to.graph.constants]
    if constants:
        return _line(to, call, constants[0])
    if call.node.operator == "Div":
        raise Refused("a quotient of two tensors has no form in a cfg")
    result, (a, b) = to.result(call), call.node.inputs
    if to.layers.shapes[a] != result:
        a, b = b, a
    channels, height, width = result
    operands = {result: "same", (channels, 1, 1): "per_channel", (1, height, width): "per_pixel"}
    operand = operands.get(to.layers.shapes[b])
    if to.layers.shapes[a] != result or operand is None:
        raise Refused("its factors have shapes that no layer multiplies; equal ones, one per channel or per pixel are possible")
    to.add(call, "mul", [a, b], result, operand=operand)
    return None


def _lift_softmax(to: Lifter, call: Call) -> None:
    shape = call.shape()
    if to.result(call)[1:] != (1, 1) or shape[call.axis(-1)] != math.prod(shape):
        raise Refused("only the classes of a classifier go through a softmax")
    to.apply(call, "softmax")


OPERATORS: dict[str, Operator] = {
    "Add": _binary(np.add, lift=_sum, keeps_sign=True),
    "Sub": _binary(np.subtract, lift=_sum),
    "Sum": Operator(_broadcast, lift=_sum, inputs=ANY),
    "Mul": _binary(np.multiply, lift=_product),
    "Div": _binary(_quotient, _SLOW, lift=_product),
    "Pow": _binary(_power, 4 * _SLOW),
    "Mod": _binary(np.mod, _SLOW),
    "Min": _joined(lambda *x: np.minimum.reduce(np.broadcast_arrays(*x)), ANY),
    "Max": _joined(lambda *x: np.maximum.reduce(np.broadcast_arrays(*x)), ANY),
    "Equal": _binary(np.equal),
    "Greater": _binary(np.greater),
    "Less": _binary(np.less),
    "And": _binary(np.logical_and),
    "Or": _binary(np.logical_or),
    "Where": _joined(np.where, (3, 3)),
    "Not": _unary(np.logical_not),
    "Neg": _unary(np.negative),
    "Abs": _unary(np.abs),
    "Sqrt": _unary(np.sqrt),
    "Exp": _unary(_elementary(elementary.exp), _SLOW),
    "Log": _unary(_elementary(elementary.log), _SLOW),
    "Sin": _unary(_elementary(elementary.sin), _SLOW),
    "Cos": _unary(_elementary(elementary.cos), _SLOW),
    "Floor": _unary(np.floor),
    "Ceil": _unary(np.ceil),
    "Round": _unary(np.round),
    "Reciprocal": _unary(lambda x: 1 / x),
    "Cast": Operator(_same, _cast),
    "Relu": _unary(lambda x: np.maximum(x, 0), lift=_activation("relu"), positive=True),
    "Sigmoid": _unary(_elementary(elementary.logistic), _SLOW, lift=_activation("logistic"), positive=True),
    "Tanh": _unary(_elementary(elementary.tanh), _SLOW, lift=_activation("tanh")),
    "Clip": Operator(_same, _clip, _clamp, positive=True, inputs=(1, 3)),
    "HardSigmoid": Operator(_same, lift=_hard_sigmoid, positive=True),
    "HardSwish": Operator(_same, lift=_activation("hard_swish")),
    "Mish": Operator(_same, lift=_activation("mish")),
    "Erf": Operator(_same),
    "mpnet.Gelu": Operator(_same, lift=_activation("gelu_erf")),
    "Gelu": Operator(_same, lift=_gelu),
    "LayerNormalization": Operator(_same, inputs=(2, 3)),
    "InstanceNormalization": Operator(_same, inputs=(3, 3)),
    "mpnet.LayerNorm": Operator(_same, lift=_layer_norm),
    "Softplus": Operator(_same, lift=_activation("softplus")),
    "Swish": Operator(_same, lift=_activation("swish")),
    "LeakyRelu": Operator(_same, lift=_leaky),
    "PRelu": Operator(_same, lift=_prelu, inputs=(2, 2)),
    "Elu": Operator(_same, lift=_elu),
    "BatchNormalization": Operator(_batch_norm_shapes, _normalized, _batch_norm, work=4, inputs=(5, 5)),
    "Softmax": Operator(_same, _softmax, _lift_softmax, work=_SLOW, positive=True),
    "DequantizeLinear": Operator(_same, _dequantize, inputs=(2, 3)),
    "Dropout": Operator(_same, inputs=(1, 3)),
    **dict.fromkeys(("LRN", "LogSoftmax", "LpNormalization", "Selu"), Operator(_same)),
    **dict.fromkeys(
        ("QuantizeLinear", "com.microsoft.QuantizeLinear", "com.microsoft.DequantizeLinear"), Operator(_same, inputs=(2, 3))
    ),
}
