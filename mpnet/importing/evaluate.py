# SPDX-License-Identifier: MIT
"""What nodes compute, in NumPy: for constants, and for the arithmetic behind the heads on a few trial values.

Only what can be needed there; sizes are looked at before anything is computed.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from mpnet.importing.graph import Array, Node, Refused

MAX_VALUES = 1 << 26
Given = Sequence[Array | None]
# Of onnx.TensorProto.
DTYPES: dict[int, Any] = {
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


def evaluate(node: Node, given: Given) -> list[Array]:
    """The results of a node. Raises: Refused for operators that are not evaluated, and for what does not fit."""
    function = _FUNCTIONS.get(node.operator)
    if function is None:
        raise Refused("is not evaluated")
    try:
        with np.errstate(all="ignore"):
            found = function(node.attributes, given)
    except (ValueError, IndexError, TypeError, KeyError, OverflowError, ZeroDivisionError, MemoryError) as error:
        raise Refused(f"cannot be computed ({error or 'out of memory'}); the file is damaged") from None
    return found if isinstance(found, list) else [found]


def can_evaluate(node: Node) -> bool:
    """Whether its operator is known here."""
    return node.operator in _FUNCTIONS


def _sized(shape: Sequence[int]) -> tuple[int, ...]:
    sides = tuple(int(side) for side in shape)
    if min(sides, default=0) < 0 or math.prod(sides) > MAX_VALUES:
        raise ValueError(f"a result of shape {list(sides)[:8]}")
    return sides


def _broadcast(function: Callable[..., Array]) -> Callable[[Mapping[str, Any], Given], Array]:
    def computed(attributes: Mapping[str, Any], given: Given) -> Array:
        arrays = [x for x in given if x is not None]
        _sized(np.broadcast_shapes(*[x.shape for x in arrays]))
        return np.asarray(function(*arrays))

    return computed


def _div(a: Array, b: Array) -> Array:
    if np.issubdtype(a.dtype, np.integer):
        return np.asarray((np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype))
    return np.asarray(a / b)


def axes_of(attributes: Mapping[str, Any], given: Given, at: int = 1) -> list[int] | None:
    """What older files say as an attribute and newer ones as an input."""
    if len(given) > at and given[at] is not None:
        return [int(value) for value in np.asarray(given[at]).ravel()]
    axes = attributes.get("axes")
    return None if axes is None else [int(axis) for axis in axes]


def reshaped(shape: Sequence[int], wanted: Sequence[int], allow_zero: bool = False) -> tuple[int, ...]:
    """The shape that Reshape gives. Raises: ValueError."""
    sides = [shape[i] if side == 0 and not allow_zero else int(side) for i, side in enumerate(wanted)]
    if sides.count(-1) == 1:
        rest = math.prod(side for side in sides if side != -1)
        if rest == 0 or math.prod(shape) % rest:
            raise ValueError(f"{list(shape)} as {list(wanted)}")
        sides[sides.index(-1)] = math.prod(shape) // rest
    if math.prod(sides) != math.prod(shape) or min(sides, default=0) < 0:
        raise ValueError(f"{list(shape)} as {list(wanted)}")
    return tuple(sides)


def _reshape(attributes: Mapping[str, Any], given: Given) -> Array:
    x, wanted = _need(given, 0), _need(given, 1)
    return x.reshape(reshaped(x.shape, wanted.ravel().tolist(), bool(attributes.get("allowzero", 0))))


def _need(given: Given, at: int) -> Array:
    if len(given) <= at or given[at] is None:
        raise ValueError(f"input {at} is missing")
    return np.asarray(given[at])


def unsqueezed(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """The shape with sides of 1 at `axes` of the result."""
    rank = len(shape) + len(axes)
    places = {axis % rank for axis in axes}
    rest = iter(shape)
    return tuple(1 if at in places else next(rest) for at in range(rank))


def _squeeze(attributes: Mapping[str, Any], given: Given) -> Array:
    axes = axes_of(attributes, given)
    return np.squeeze(_need(given, 0), None if axes is None else tuple(axes))


def slices_of(attributes: Mapping[str, Any], given: Given, rank: int) -> tuple[slice, ...]:
    """What Slice takes of each axis. Raises: ValueError."""
    if "starts" in attributes:
        starts, ends = attributes["starts"], attributes["ends"]
        axes, steps = attributes.get("axes"), None
    else:
        starts, ends = _need(given, 1).ravel().tolist(), _need(given, 2).ravel().tolist()
        axes = axes_of({}, given, 3)
        steps = None if len(given) < 5 or given[4] is None else _need(given, 4).ravel().tolist()
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    found = [slice(None)] * rank
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        # Reversed up to the first: what NumPy says with None.
        stop = None if step < 0 and int(end) < -(1 << 30) else int(end)
        if step == 0 or not -rank <= axis < rank:
            raise ValueError(f"a slice along axis {axis} by steps of {step}")
        found[axis] = slice(int(start), stop, int(step))
    return tuple(found)


def parts_of(attributes: Mapping[str, Any], given: Given, length: int, outputs: int) -> list[int]:
    """The lengths that Split cuts into. Raises: ValueError."""
    parts = attributes.get("split")
    if len(given) > 1 and given[1] is not None:
        parts = _need(given, 1).ravel().tolist()
    if parts is None:
        count = int(attributes.get("num_outputs", outputs))
        each = -(-length // count)
        parts = [min(each, length - each * i) for i in range(count)]
    if sum(parts) != length or min(parts, default=0) < 0:
        raise ValueError(f"parts {list(parts)[:8]} of {length}")
    return [int(part) for part in parts]


def _split(attributes: Mapping[str, Any], given: Given) -> list[Array]:
    x, axis = _need(given, 0), int(attributes.get("axis", 0))
    parts = parts_of(attributes, given, x.shape[axis], int(attributes.get("outputs", 1)))
    return np.split(x, np.cumsum(parts)[:-1].tolist(), axis)


def _concat(attributes: Mapping[str, Any], given: Given) -> Array:
    arrays = [np.asarray(x) for x in given if x is not None]
    if sum(x.size for x in arrays) > MAX_VALUES:
        raise ValueError("a result that large")
    return np.concatenate(arrays, int(attributes["axis"]))


def _expand(attributes: Mapping[str, Any], given: Given) -> Array:
    x = _need(given, 0)
    shape = np.broadcast_shapes(x.shape, _sized(_need(given, 1).ravel().tolist()))
    return np.array(np.broadcast_to(x, _sized(shape)))


def _tile(attributes: Mapping[str, Any], given: Given) -> Array:
    x, times = _need(given, 0), _need(given, 1).ravel().tolist()
    _sized([a * b for a, b in zip(x.shape, times, strict=True)])
    return np.asarray(np.tile(x, times))


def _range(attributes: Mapping[str, Any], given: Given) -> Array:
    start, stop, step = (_need(given, i) for i in range(3))
    _sized([max(0, math.ceil((stop.item() - start.item()) / step.item()))])
    return np.asarray(np.arange(start.item(), stop.item(), step.item())).astype(start.dtype)


def _constant_of_shape(attributes: Mapping[str, Any], given: Given) -> Array:
    value = np.asarray(attributes.get("value", np.zeros(1, np.float32)))
    return np.full(_sized(_need(given, 0).ravel().tolist()), value.ravel()[0])


def _conv(attributes: Mapping[str, Any], given: Given) -> Array:
    """1x1 alone: what distances of boxes are summed by."""
    x, w = _need(given, 0), _need(given, 1)
    if (
        w.shape[2:] != (1, 1)
        or attributes.get("group", 1) != 1
        or any(attributes.get("pads", ()))
        or set(attributes.get("strides", [1])) != {1}
    ):
        raise ValueError("a convolution that large behind the heads")
    found = np.asarray(np.einsum("oc,nchw->nohw", w[:, :, 0, 0], x))
    return found if len(given) < 3 or given[2] is None else found + np.asarray(given[2]).reshape(1, -1, 1, 1)


def _softmax(attributes: Mapping[str, Any], given: Given) -> Array:
    x, axis = _need(given, 0), int(attributes.get("axis", -1))
    parts = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(parts / parts.sum(axis=axis, keepdims=True))


def _clip(attributes: Mapping[str, Any], given: Given) -> Array:
    low, high = (given[at] if len(given) > at else attributes.get(name) for at, name in ((1, "min"), (2, "max")))
    return np.asarray(np.clip(_need(given, 0), -np.inf if low is None else low, np.inf if high is None else high))


def _cast(attributes: Mapping[str, Any], given: Given) -> Array:
    return _need(given, 0).astype(DTYPES[int(attributes["to"])])


def _unary(function: Callable[[Array], Any]) -> Callable[[Mapping[str, Any], Given], Array]:
    return lambda attributes, given: np.asarray(function(_need(given, 0)))


def _reduce(function: Callable[..., Any]) -> Callable[[Mapping[str, Any], Given], Array]:
    def computed(attributes: Mapping[str, Any], given: Given) -> Array:
        axes = axes_of(attributes, given)
        return np.asarray(
            function(_need(given, 0), axis=None if axes is None else tuple(axes), keepdims=bool(attributes.get("keepdims", 1)))
        )

    return computed


def _dequantize(attributes: Mapping[str, Any], given: Given) -> Array:
    x, scale = _need(given, 0), _need(given, 1).astype(np.float32)
    zero = _need(given, 2) if len(given) > 2 and given[2] is not None else np.zeros_like(scale, np.int64)
    if scale.size > 1:
        axis = int(attributes.get("axis", 1)) % x.ndim
        sides = [-1 if at == axis else 1 for at in range(x.ndim)]
        scale, zero = scale.reshape(sides), zero.reshape(sides)
    return ((x.astype(np.int64) - zero.astype(np.int64)).astype(np.float32) * scale).astype(np.float32)


_FUNCTIONS: dict[str, Callable[[Mapping[str, Any], Given], Array | list[Array]]] = {
    "Add": _broadcast(np.add),
    "Sub": _broadcast(np.subtract),
    "Mul": _broadcast(np.multiply),
    "Div": _broadcast(_div),
    "Pow": _broadcast(np.power),
    "Equal": _broadcast(np.equal),
    "Greater": _broadcast(np.greater),
    "Less": _broadcast(np.less),
    "And": _broadcast(np.logical_and),
    "Or": _broadcast(np.logical_or),
    "Where": _broadcast(np.where),
    "Min": _broadcast(lambda *x: np.minimum.reduce(np.broadcast_arrays(*x))),
    "Max": _broadcast(lambda *x: np.maximum.reduce(np.broadcast_arrays(*x))),
    "Mod": _broadcast(np.mod),
    "Not": _unary(np.logical_not),
    "Neg": _unary(np.negative),
    "Abs": _unary(np.abs),
    "Sqrt": _unary(np.sqrt),
    "Exp": _unary(np.exp),
    "Log": _unary(np.log),
    "Floor": _unary(np.floor),
    "Ceil": _unary(np.ceil),
    "Round": _unary(np.round),
    "Reciprocal": _unary(lambda x: 1 / x),
    "Identity": _unary(lambda x: x),
    "Sigmoid": _unary(lambda x: 1 / (1 + np.exp(-x))),
    "Tanh": _unary(np.tanh),
    "Relu": _unary(lambda x: np.maximum(x, 0)),
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Concat": _concat,
    "Expand": _expand,
    "Tile": _tile,
    "Range": _range,
    "Unsqueeze": lambda a, g: _need(g, 0).reshape(unsqueezed(_need(g, 0).shape, axes_of(a, g) or [])),
    "Flatten": lambda a, g: _need(g, 0).reshape(flattened(_need(g, 0).shape, a)),
    "Transpose": lambda a, g: np.transpose(_need(g, 0), a.get("perm")),
    "Slice": lambda a, g: _need(g, 0)[slices_of(a, g, _need(g, 0).ndim)],
    "Gather": lambda a, g: np.take(_need(g, 0), _need(g, 1), int(a.get("axis", 0))),
    "Shape": lambda a, g: np.array(_need(g, 0).shape[a.get("start", 0) : a.get("end")], np.int64),
    "Size": lambda a, g: np.array(_need(g, 0).size, np.int64),
    "Constant": lambda a, g: constant_of(a),
    "ConstantOfShape": _constant_of_shape,
    "Cast": _cast,
    "Clip": _clip,
    "Split": _split,
    "Softmax": _softmax,
    "Conv": _conv,
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "ReduceMax": _reduce(np.max),
    "ReduceMean": _reduce(np.mean),
    "DequantizeLinear": _dequantize,
    "MatMul": lambda a, g: _need(g, 0) @ _need(g, 1),
}


def flattened(shape: Sequence[int], attributes: Mapping[str, Any]) -> tuple[int, int]:
    """The shape that Flatten gives."""
    axis = int(attributes.get("axis", 1))
    axis = axis + len(shape) if axis < 0 else axis
    return math.prod(shape[:axis]), math.prod(shape[axis:])


def constant_of(attributes: Mapping[str, Any]) -> Array:
    """What a Constant node holds."""
    for name, kind in (
        ("value", None),
        ("value_float", np.float32),
        ("value_int", np.int64),
        ("value_floats", np.float32),
        ("value_ints", np.int64),
    ):
        if name in attributes:
            return np.asarray(attributes[name], kind)
    raise ValueError("a constant that is no array")
