# SPDX-License-Identifier: MIT
"""Operators that compute every value by itself: arithmetic, activations, scales per channel."""

from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np
from numpy.typing import ArrayLike

from mpnet.importing.graph import Array, Refused
from mpnet.importing.operators.record import ANY_COUNT, Lifter, Operator, OperatorCall, Shape
from mpnet.quantization import elementary
from mpnet.quantization.codes import LEAKY_SLOPE

SHARES_EPSILON = 0.0001
"""What the activation normalize_channels adds to a sum of channels; docs/arithmetic.md, section 5."""

_SIXTH = 1 / 6
_SLOW = 8
"""How many additions an exponential and the like take."""

# Of onnx.TensorProto.
_DTYPES: dict[int, type[np.generic]] = {
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


def _same_shape(call: OperatorCall) -> Shape:
    return call.shape()


def _broadcast_shape(call: OperatorCall) -> Shape:
    return np.broadcast_shapes(*[call.shape(index) for index in range(len(call.arrays))])


def _unary(function: Callable[[Array], ArrayLike], work: int = 1, **options: Any) -> Operator:
    return Operator(_same_shape, lambda call: np.asarray(function(call.array(0))), work=work, **options)


def _joined(function: Callable[..., ArrayLike], inputs: tuple[int, int], work: int = 1, **options: Any) -> Operator:
    def computed(call: OperatorCall) -> Array:
        return np.asarray(function(*[call.array(index) for index in range(len(call.arrays))]))

    return Operator(_broadcast_shape, computed, work=work, inputs=inputs, **options)


def _binary(function: Callable[..., ArrayLike], work: int = 1, **options: Any) -> Operator:
    return _joined(function, (2, 2), work, **options)


def _elementary(function: Callable[..., ArrayLike]) -> Callable[..., Array]:
    """Let a function of float64, whose bits depend on no CPU, take arrays of any type; the result has the first one's."""
    return lambda *arrays: np.asarray(function(*[np.asarray(x, np.float64) for x in arrays])).astype(arrays[0].dtype)


def _raise_to_power(x: Array, exponent: Array) -> Array:
    if np.issubdtype(x.dtype, np.integer) and np.issubdtype(exponent.dtype, np.integer) and not (exponent < 0).any():
        return np.asarray(np.power(x, exponent))
    return _elementary(elementary.power)(x, exponent)


def _divide(a: Array, b: Array) -> Array:
    if np.issubdtype(a.dtype, np.integer):
        return np.asarray((np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype))
    return np.asarray(a / b)


def _compute_clip(call: OperatorCall) -> Array:
    low, high = _read_limits(call)
    return np.asarray(np.clip(call.array(0), low, high)).astype(call.array(0).dtype)


def _read_limits(call: OperatorCall) -> tuple[float, float]:
    return call.number("min", -np.inf, 1), call.number("max", np.inf, 2)


def _compute_cast(call: OperatorCall) -> Array:
    kind = call.integer("to")
    if kind not in _DTYPES:
        raise Refused(f"the type {kind} is no type that mpnet computes with")
    return call.array(0).astype(_DTYPES[kind])


def _compute_softmax(call: OperatorCall) -> Array:
    x, axis = call.array(0), call.axis(-1)
    if call.integer("flattened", 0):
        shape = x.shape
        return _softmax(x.reshape(math.prod(shape[:axis]), -1), 1).reshape(shape)
    return _softmax(x, axis)


def _softmax(x: Array, axis: int) -> Array:
    exponentials = _elementary(elementary.exp)(x - x.max(axis=axis, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=axis, keepdims=True))


def _compute_dequantize(call: OperatorCall) -> Array:
    x, scale, zero = call.array(0), call.array(1).astype(np.float32), call.constant(2)
    zero = np.zeros_like(scale, np.int64) if zero is None else zero
    if scale.size > 1:
        axis = call.integer("axis", 1) % x.ndim
        sides = [-1 if other_axis == axis else 1 for other_axis in range(x.ndim)]
        scale, zero = scale.reshape(sides), zero.reshape(sides)
    return ((x.astype(np.int64) - zero.astype(np.int64)).astype(np.float32) * scale).astype(np.float32)


def _lifting_activation(word: str) -> Callable[[Lifter, OperatorCall], object]:
    return lambda lifter, call: lifter.apply(call, "activation", word=word)


def _lift_leaky(lifter: Lifter, call: OperatorCall) -> None:
    _lift_slopes(lifter, call, np.array([call.number("alpha", 0.01)], np.float32))


def _lift_prelu(lifter: Lifter, call: OperatorCall) -> None:
    slopes = call.array(1)
    rank = len(call.shape())
    sides = (1,) * (rank - slopes.ndim) + slopes.shape
    if slopes.size not in (1, lifter.result(call)[0]) or any(side != 1 for axis, side in enumerate(sides) if axis != 1):
        raise Refused(
            f"its slopes of the shape {list(slopes.shape)[:8]} differ by pixel; one per channel, (channels, 1, 1), is possible"
        )
    _lift_slopes(lifter, call, np.asarray(slopes, np.float32).ravel())


def _lift_slopes(lifter: Lifter, call: OperatorCall, slopes: Array) -> None:
    words_by_slope = {0.0: "relu", round(LEAKY_SLOPE, 6): "leaky", round(0.01, 6): "relie"}
    word = words_by_slope.get(round(float(slopes[0]), 6)) if (slopes == slopes[0]).all() else None
    if word is not None:
        lifter.apply(call, "activation", word=word)
    else:
        lifter.apply(call, "prelu", slopes=np.broadcast_to(slopes, lifter.result(call)[0]))


def _lift_clamp(lifter: Lifter, call: OperatorCall) -> None:
    """Append operations that keep values between two limits."""
    low, high = _read_limits(call)
    word = {(0.0, 6.0): "relu6", (-1.0, 1.0): "hardtan"}.get((low, high))
    if low < -1e30 and high > 1e30:
        lifter.add_line(call, call.node.inputs[0], lifter.result(call), call.node.output, 1.0, 0.0)
        return
    if low == 0 and high > 1e30:
        word = "relu"
    if word is not None:
        lifter.apply(call, "activation", word=word)
        return
    if low < -1e30 or high > 1e30:
        _lift_one_limit(lifter, call, low, high)
        return
    if not (np.isfinite(low) and np.isfinite(high) and high > low):
        raise Refused(f"a clamp to [{low:g}, {high:g}] has no form in a cfg")
    # By relu6, between two lines.
    shape, factor, output = lifter.result(call), 6 / (high - low), call.node.output
    x = lifter.add_line(call, call.node.inputs[0], shape, f"{output}/line", factor, -low * factor)
    x = lifter.add(call, "activation", [x], shape, f"{output}/relu6", word="relu6")
    lifter.add_line(call, x, shape, output, 1 / factor, low)


def _lift_one_limit(lifter: Lifter, call: OperatorCall, low: float, high: float) -> None:
    """Append operations that keep values above or below one limit: by relu of the distance from it."""
    limit, sign = (high, -1.0) if low < -1e30 else (low, 1.0)
    if not np.isfinite(limit):
        raise Refused(f"a clamp to [{low:g}, {high:g}] has no form in a cfg")
    shape, output = lifter.result(call), call.node.output
    x = lifter.add_line(call, call.node.inputs[0], shape, f"{output}/distance", sign, -sign * limit)
    x = lifter.add(call, "activation", [x], shape, f"{output}/relu", word="relu")
    lifter.add_line(call, x, shape, output, sign, limit)


def _lift_swish(lifter: Lifter, call: OperatorCall) -> None:
    if call.number("alpha", 1.0) != 1.0:
        raise Refused("alpha must be 1; export it as Mul, Sigmoid and Mul")
    lifter.apply(call, "activation", word="swish")


def _lift_hard_sigmoid(lifter: Lifter, call: OperatorCall) -> None:
    slope, middle = call.number("alpha", 0.2), call.number("beta", 0.5)
    x, shape = call.node.inputs[0], lifter.result(call)
    if abs(slope - _SIXTH) > 1e-6 or middle != 0.5:
        x = lifter.add_line(call, x, shape, f"{call.node.output}/line", 6 * slope, 6 * middle - 3)
    lifter.add(call, "activation", [x], shape, word="hard_sigmoid")


def _lift_elu(lifter: Lifter, call: OperatorCall) -> None:
    if call.number("alpha", 1.0) != 1.0:
        raise Refused("alpha must be 1")
    lifter.apply(call, "activation", word="elu")


def _batch_norm_shapes(call: OperatorCall) -> list[Shape]:
    """Return the shapes of its results: in training it gives the running mean and variance as well."""
    return [call.shape(), *[call.shape(1)] * (len(call.node.outputs) - 1)]


def _compute_batch_norm(call: OperatorCall) -> list[Array]:
    """Compute a batch norm of constants.

    Programs write weights that are normalised when the model runs as a batch norm in training.
    """
    x, scale, shift, mean, variance = (call.array(index).astype(np.float64) for index in range(5))
    axes = tuple(index for index in range(x.ndim) if index != 1)
    if call.integer("training_mode", 0):
        mean, variance = x.mean(axes), x.var(axes)
    sides = [-1 if index == 1 else 1 for index in range(x.ndim)]
    factor = (scale / np.sqrt(variance + call.number("epsilon", 1e-5))).reshape(sides)
    result = ((x - mean.reshape(sides)) * factor + shift.reshape(sides)).astype(np.float32)
    return [result, *[mean.astype(np.float32), variance.astype(np.float32)][: len(call.node.outputs) - 1]]


def _lift_batch_norm(lifter: Lifter, call: OperatorCall) -> None:
    channels = lifter.result(call)[0]
    if call.integer("training_mode", 0):
        raise Refused(
            "it is in training: it normalises by the mean of the images that it sees; export the model for inference, after "
            "`model.eval()`"
        )
    if not call.integer("spatial", 1):
        raise Refused("it has a mean for each pixel (spatial=0); one per channel is possible")
    constants = [call.array(index) for index in range(1, 5)]
    if any(constant.size != channels for constant in constants):
        raise Refused(f"its constants do not fit {channels} channels; the file is damaged")
    scale, shift, mean, variance = (constant.astype(np.float64).ravel() for constant in constants)
    factor = scale / np.sqrt(variance + call.number("epsilon", 1e-5))
    lifter.apply(call, "affine", scale=factor, shift=shift - mean * factor)


def _lift_gelu(lifter: Lifter, call: OperatorCall) -> None:
    lifter.apply(
        call, "activation", word="gelu" if call.text("approximate", "none", ("none", "tanh")) == "tanh" else "gelu_erf"
    )


def _lift_layer_norm(lifter: Lifter, call: OperatorCall) -> None:
    lifter.apply(call, "layernorm", epsilon=f"{call.number('epsilon', 1e-5):.9g}", whole=call.integer("whole", 0) or None)


def _lift_response_norm(lifter: Lifter, call: OperatorCall) -> None:
    """Append x * (scale * norm / (mean of norms + epsilon) + residual) + shift; norms are those of channels over all pixels."""
    if call.integer("axis", 1) != 1:
        raise Refused("normalises channels that stand behind the pixels, where they are no layer's")
    scale, shift = (call.array(index).astype(np.float64) for index in (1, 2))
    (channels, height, width), x, output = lifter.chw(call), call.node.inputs[0], call.node.output
    pixel, shape = (channels, 1, 1), lifter.result(call)
    # normalize_channels adds a constant of its own to the sum of channels: norms are as large as makes it the file's.
    size = SHARES_EPSILON / (channels * call.number("epsilon", 1e-6))
    if not 1e-6 < size < 1e6:
        raise Refused("its epsilon is too far from 1e-6 to have a form in a cfg")
    square = lifter.add(call, "mul", [x, x], shape, f"{output}/square", operand="same")
    mean = lifter.add(call, "global", [square], pixel, f"{output}/mean")
    total = lifter.add_line(call, mean, pixel, f"{output}/total", height * width * size * size, 0.0)
    norm = lifter.add(call, "activation", [total], pixel, f"{output}/norm", word="sqrt")
    share = lifter.add(call, "activation", [norm], pixel, f"{output}/share", word="normalize_channels")
    factor = lifter.add_line(call, share, pixel, f"{output}/factor", scale * channels, call.integer("residual", 0))
    product = lifter.add(call, "mul", [x, factor], shape, f"{output}/product", operand="per_channel")
    lifter.add_line(call, product, shape, output, 1.0, shift)


def _lift_sum(lifter: Lifter, call: OperatorCall) -> None:
    node = call.node
    constant_indices = [index for index, name in enumerate(node.inputs) if name in lifter.graph.constants]
    if len(node.inputs) == 1:
        raise Refused("a sum of one tensor")
    if constant_indices:
        return _lift_line(lifter, call, constant_indices[0])
    shapes = {lifter.chw(call, index) for index in range(len(node.inputs))}
    if len(shapes) > 1:
        raise Refused(f"adds tensors of different shapes {sorted(shapes)}")
    _check_ranks(call)
    x, result = node.inputs[0], lifter.result(call)
    if node.operator == "Sub":
        minus = lifter.add_line(call, node.inputs[1], result, f"{node.output}/minus", -1.0, 0.0)
        lifter.add(call, "add", [x, minus], result)
        return None
    for number, summand in enumerate(node.inputs[1:], 1):
        is_last = number == len(node.inputs) - 1
        x = lifter.add(call, "add", [x, summand], result, node.output if is_last else f"{node.output}/{number}")
    return None


def _lift_line(lifter: Lifter, call: OperatorCall, constant_index: int) -> None:
    """Append a sum, difference, product or quotient with the constant input `constant_index`, which has a value per channel."""
    if len(call.node.inputs) != 2:
        raise Refused("joins more than two tensors and constants; export it as several nodes")
    value, shape = call.array(constant_index).astype(np.float64), lifter.chw(call, 1 - constant_index)
    rank = len(call.shape(1 - constant_index))
    sides = (1,) * (rank - value.ndim) + value.shape
    if call.node.operator == "Add" and sides == (1, *shape) and math.prod(shape[1:]) > 1:
        lifter.apply(call, "offset", offset=call.array(constant_index).astype(np.float32).reshape(shape))
        return
    if len(sides) != rank or any(side != 1 for axis, side in enumerate(sides) if axis != 1):
        raise Refused("its constant differs by pixel; one value per channel is possible")
    if value.size not in (1, shape[0]) or lifter.result(call) != shape:
        raise Refused("its constant does not fit the tensor's channels")
    per_channel, x = value.ravel(), call.node.inputs[1 - constant_index]
    match call.node.operator:
        case "Mul":
            scale, shift = per_channel, np.zeros(1)
        case "Sub":
            scale, shift = (np.ones(1), -per_channel) if constant_index == 1 else (-np.ones(1), per_channel)
        case "Div" if constant_index == 0:
            raise Refused("a constant divided by a tensor has no form in a cfg")
        case "Div":
            scale, shift = 1 / per_channel, np.zeros(1)
        case _:
            scale, shift = np.ones(1), per_channel
    lifter.add_line(call, x, shape, call.node.output, scale, shift)


def _check_ranks(call: OperatorCall) -> None:
    """Refuse operands of different numbers of axes: a row of values would be spread along the width, not over channels."""
    if len({len(call.shape(index)) for index in range(len(call.node.inputs))}) > 1:
        shapes = " and ".join(str(list(call.shape(index))[:8]) for index in range(min(3, len(call.node.inputs))))
        raise Refused(f"joins tensors of the shapes {shapes}: values along the last axis, not one per channel")


def _lift_product(lifter: Lifter, call: OperatorCall) -> None:
    constant_indices = [index for index, name in enumerate(call.node.inputs) if name in lifter.graph.constants]
    if constant_indices:
        return _lift_line(lifter, call, constant_indices[0])
    if call.node.operator == "Div":
        raise Refused("a quotient of two tensors has no form in a cfg")
    _check_ranks(call)
    result, (a, b) = lifter.result(call), call.node.inputs
    if lifter.layers.shapes[a] != result:
        a, b = b, a
    channels, height, width = result
    operands = {result: "same", (channels, 1, 1): "per_channel", (1, height, width): "per_pixel"}
    operand = operands.get(lifter.layers.shapes[b])
    if lifter.layers.shapes[a] != result or operand is None:
        raise Refused("its factors have shapes that no layer multiplies; equal ones, one per channel or per pixel are possible")
    lifter.add(call, "mul", [a, b], result, operand=operand)
    return None


def _lift_power(lifter: Lifter, call: OperatorCall) -> None:
    exponent = call.constant(1)
    power = float(exponent.ravel()[0]) if exponent is not None and exponent.size == 1 else math.nan
    if power == 0.5:
        lifter.apply(call, "activation", word="sqrt")
    elif power == 2 and lifter.chw(call) == lifter.result(call):
        lifter.add(call, "mul", call.node.inputs[:1] * 2, lifter.result(call), operand="same")
    else:
        raise Refused("only squares and square roots have a form in a cfg")


def _lift_softmax(lifter: Lifter, call: OperatorCall) -> None:
    shape = call.shape()
    axis = call.axis(-1)
    joined = math.prod(shape[axis:]) if call.integer("flattened", 0) else shape[axis]
    if lifter.result(call)[1:] != (1, 1) or joined != math.prod(shape):
        raise Refused("only the classes of a classifier go through a softmax")
    lifter.apply(call, "softmax")


OPERATORS: dict[str, Operator] = {
    "Add": _binary(np.add, lift=_lift_sum, keeps_sign=True),
    "Sub": _binary(np.subtract, lift=_lift_sum),
    "Sum": Operator(_broadcast_shape, lift=_lift_sum, inputs=ANY_COUNT),
    "Mul": _binary(np.multiply, lift=_lift_product),
    "Div": _binary(_divide, _SLOW, lift=_lift_product),
    "Pow": _binary(_raise_to_power, 4 * _SLOW, lift=_lift_power),
    "Mod": _binary(np.mod, _SLOW),
    "Min": _joined(lambda *x: np.minimum.reduce(np.broadcast_arrays(*x)), ANY_COUNT),
    "Max": _joined(lambda *x: np.maximum.reduce(np.broadcast_arrays(*x)), ANY_COUNT),
    "Equal": _binary(np.equal),
    "Greater": _binary(np.greater),
    "Less": _binary(np.less),
    "And": _binary(np.logical_and),
    "Or": _binary(np.logical_or),
    "Where": _joined(np.where, (3, 3)),
    "Not": _unary(np.logical_not),
    "Neg": _unary(np.negative),
    "Abs": _unary(np.abs),
    "Sqrt": _unary(np.sqrt, lift=_lifting_activation("sqrt"), positive=True),
    "Exp": _unary(_elementary(elementary.exp), _SLOW),
    "Log": _unary(_elementary(elementary.log), _SLOW),
    "Sin": _unary(_elementary(elementary.sin), _SLOW),
    "Cos": _unary(_elementary(elementary.cos), _SLOW),
    "Floor": _unary(np.floor),
    "Ceil": _unary(np.ceil),
    "Round": _unary(np.round),
    "Reciprocal": _unary(lambda x: 1 / x),
    "Cast": Operator(_same_shape, _compute_cast),
    "Relu": _unary(lambda x: np.maximum(x, 0), lift=_lifting_activation("relu"), positive=True),
    "Sigmoid": _unary(_elementary(elementary.logistic), _SLOW, lift=_lifting_activation("logistic"), positive=True),
    "Tanh": _unary(_elementary(elementary.tanh), _SLOW, lift=_lifting_activation("tanh")),
    "Clip": Operator(_same_shape, _compute_clip, _lift_clamp, positive=True, inputs=(1, 3)),
    "HardSigmoid": Operator(_same_shape, lift=_lift_hard_sigmoid, positive=True),
    "HardSwish": Operator(_same_shape, lift=_lifting_activation("hard_swish")),
    "Mish": Operator(_same_shape, lift=_lifting_activation("mish")),
    "Erf": Operator(_same_shape),
    "mpnet.Gelu": Operator(_same_shape, lift=_lifting_activation("gelu_erf")),
    "Gelu": Operator(_same_shape, lift=_lift_gelu),
    "LayerNormalization": Operator(_same_shape, inputs=(2, 3)),
    "InstanceNormalization": Operator(_same_shape, inputs=(3, 3)),
    "mpnet.LayerNorm": Operator(_same_shape, lift=_lift_layer_norm),
    "mpnet.ResponseNorm": Operator(_same_shape, lift=_lift_response_norm, inputs=(3, 3)),
    "mpnet.ChannelShares": Operator(_same_shape, lift=_lifting_activation("normalize_channels"), positive=True),
    "Softplus": Operator(_same_shape, lift=_lifting_activation("softplus")),
    "Swish": Operator(_same_shape, lift=_lift_swish),
    "LeakyRelu": Operator(_same_shape, lift=_lift_leaky),
    "PRelu": Operator(_same_shape, lift=_lift_prelu, inputs=(2, 2)),
    "Elu": Operator(_same_shape, lift=_lift_elu),
    "BatchNormalization": Operator(_batch_norm_shapes, _compute_batch_norm, _lift_batch_norm, work=4, inputs=(5, 5)),
    "Softmax": Operator(_same_shape, _compute_softmax, _lift_softmax, work=_SLOW, positive=True),
    "DequantizeLinear": Operator(_same_shape, _compute_dequantize, inputs=(2, 3)),
    "Dropout": Operator(_same_shape, inputs=(1, 3)),
    **dict.fromkeys(("LRN", "LogSoftmax", "LpNormalization", "Selu"), Operator(_same_shape)),
    **dict.fromkeys(
        ("QuantizeLinear", "com.microsoft.QuantizeLinear", "com.microsoft.DequantizeLinear"),
        Operator(_same_shape, inputs=(2, 3)),
    ),
}
