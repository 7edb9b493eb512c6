# SPDX-License-Identifier: MIT
"""Operators that multiply by weights or look at a window: convolutions, poolings, matrices, means."""

from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from mpnet.importing.graph import Array, Refused
from mpnet.importing.operators.record import Lifter, Operator, OperatorCall, Shape
from mpnet.quantization.elementary import matmul

_AUTO_PADS = ("NOTSET", "", "VALID", "SAME_UPPER", "SAME_LOWER")


def _read_window(call: OperatorCall, sizes: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Return (strides, dilations, pads) of a convolution or pooling.

    pads are (top, left, ..., bottom, right, ...), with SAME_UPPER and the like made explicit.
    """
    rank, shape = len(sizes), call.shape()
    if len(shape) != rank + 2:
        raise Refused(f"a window of {rank} axes over a tensor of the shape {list(shape)[:8]}; the file is damaged")
    strides = call.integers("strides", required_count=rank) or [1] * rank
    dilations = call.integers("dilations", required_count=rank) or [1] * rank
    pads = call.integers("pads", required_count=2 * rank) or [0] * (2 * rank)
    if min(*sizes, *strides, *dilations, 1) < 1 or min(pads, default=0) < 0:
        raise Refused("sizes, strides and dilations must be at least 1, pads at least 0; the file is damaged")
    auto = call.text("auto_pad", "NOTSET", _AUTO_PADS)
    if auto not in ("NOTSET", ""):
        for axis, (side, size, stride, dilation) in enumerate(zip(shape[2:], sizes, strides, dilations, strict=True)):
            reach = (size - 1) * dilation + 1
            total = 0 if auto == "VALID" else max(0, (-(-side // stride) - 1) * stride + reach - side)
            pads[axis] = total - total // 2 if auto == "SAME_LOWER" else total // 2
            pads[rank + axis] = total - pads[axis]
    return strides, dilations, pads


def _count_positions(call: OperatorCall, sizes: Sequence[int], ceil: bool = False) -> list[int]:
    """Count the positions of a window, by axis. ceil: the last one may begin inside and end outside."""
    rank = len(sizes)
    strides, dilations, pads = _read_window(call, sizes)
    counts = []
    for axis, side in enumerate(call.shape()[2:]):
        travel = side + pads[axis] + pads[rank + axis] - dilations[axis] * (sizes[axis] - 1) - 1
        count = (-(-travel // strides[axis]) if ceil else travel // strides[axis]) + 1
        # The last window must begin inside.
        counts.append(count - 1 if ceil and (count - 1) * strides[axis] >= side + pads[axis] else count)
    return counts


def _conv_shape(call: OperatorCall) -> Shape:
    weights = call.shape(1)
    return (call.shape()[0], weights[0], *_count_positions(call, weights[2:]))


def _multiply_matrices(a: Array, b: Array) -> Array:
    """Return the product of matrices, or with a vector, as `a @ b`, with the same bits on every CPU."""
    if b.ndim == 1:
        return np.asarray(_multiply_matrices(a, b[:, None])[..., 0])
    if np.issubdtype(a.dtype, np.integer):
        return np.asarray(a @ b)
    return matmul(np.asarray(a, np.float64), np.asarray(b, np.float64)).astype(a.dtype)


def _compute_conv(call: OperatorCall) -> Array:
    """Compute a 1x1 convolution, which distances of boxes are summed by; no other is computed."""
    x, w, bias = call.array(0), call.array(1), call.constant(2)
    strides, _, pads = _read_window(call, w.shape[2:])
    if w.shape[2:] != (1, 1) or call.integer("group", 1) != 1 or any(pads) or set(strides) != {1}:
        raise Refused("a convolution that large behind the heads")
    result = _multiply_matrices(w[:, :, 0, 0], x.reshape(*x.shape[:2], -1)).reshape(len(x), len(w), *x.shape[2:])
    return result if bias is None else result + bias.reshape(1, -1, 1, 1)


def _read_weights(call: OperatorCall, kind: str) -> Array:
    weights = call.constant(1)
    if weights is None or weights.ndim != 4 or 0 in weights.shape:
        raise Refused(f"only {kind} over two axes have a form in a cfg")
    return weights


def _read_bias(call: OperatorCall, filters: int) -> Array:
    bias = call.constant(2)
    bias = np.zeros(filters, np.float32) if bias is None else np.asarray(bias, np.float32).ravel()
    if bias.size not in (1, filters):
        raise Refused(f"has {bias.size} biases for {filters} filters; the file is damaged")
    return np.broadcast_to(bias, filters)


def _lift_conv(lifter: Lifter, call: OperatorCall) -> None:
    weights, groups = _read_weights(call, "convolutions"), call.integer("group", 1)
    strides, dilations, pads = _read_window(call, weights.shape[2:])
    channels = lifter.chw(call)[0]
    if groups < 1 or weights.shape[1] * groups != channels or len(weights) % groups:
        raise Refused(f"weights of the shape {list(weights.shape)} in {groups} groups do not fit {channels} channels")
    lifter.apply(
        call,
        "conv",
        weights=weights,
        weights_name=call.node.inputs[1],
        bias=_read_bias(call, len(weights)),
        strides=strides,
        dilations=dilations,
        pads=pads,
        groups=groups,
    )


def _read_deconv_window(call: OperatorCall, sizes: Sequence[int]) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return (strides, dilations, pads, sides of the result) of a transposed convolution.

    Where the file states the result's sides (`output_shape`), the pads are what leads to them.
    """
    rank, shape = len(sizes), call.shape()
    strides, dilations, pads = _read_window(call, sizes)
    output_padding = call.integers("output_padding", required_count=rank) or [0] * rank
    reached = [
        strides[axis] * (shape[2 + axis] - 1) + output_padding[axis] + (sizes[axis] - 1) * dilations[axis] + 1
        for axis in range(rank)
    ]
    stated = call.integers("output_shape") or []
    if not stated:
        return strides, dilations, pads, [reached[axis] - pads[axis] - pads[rank + axis] for axis in range(rank)]
    sides = stated[-rank:]  # some programs state images and channels as well
    if len(stated) not in (rank, rank + 2) or any(side > reach for side, reach in zip(sides, reached, strict=True)):
        raise Refused(f"its output_shape {stated[:8]} is larger than what its filters reach, {reached}")
    totals = [reach - side for side, reach in zip(sides, reached, strict=True)]
    smaller, larger = [total // 2 for total in totals], [total - total // 2 for total in totals]
    is_upper = call.text("auto_pad", "NOTSET", _AUTO_PADS) == "SAME_UPPER"
    return strides, dilations, [*smaller, *larger] if is_upper else [*larger, *smaller], sides


def _deconv_shape(call: OperatorCall) -> Shape:
    shape, weights = call.shape(), call.shape(1)
    return (shape[0], weights[1] * call.integer("group", 1), *_read_deconv_window(call, weights[2:])[3])


def _lift_deconv(lifter: Lifter, call: OperatorCall) -> None:
    weights = _read_weights(call, "transposed convolutions")
    strides, dilations, pads, _ = _read_deconv_window(call, weights.shape[2:])
    square = weights.shape[2] == weights.shape[3] and len(set(strides)) == 1 and len(set(pads)) == 1 and set(dilations) == {1}
    if (
        call.integer("group", 1) != 1
        or any(call.integers("output_padding") or ())
        or not square
        or call.text("auto_pad", "NOTSET") != "NOTSET"
        or pads[0] > weights.shape[2] - 1
    ):
        raise Refused("transposed convolutions are square, of one group, with equal padding; export it as Resize and Conv")
    if weights.shape[0] != lifter.chw(call)[0]:
        raise Refused(f"weights of the shape {list(weights.shape)} do not fit {lifter.chw(call)[0]} channels")
    lifter.apply(
        call,
        "deconv",
        weights=weights,
        weights_name=call.node.inputs[1],
        bias=_read_bias(call, weights.shape[1]),
        stride=strides[0],
        padding=pads[0],
    )


def _read_kernel_shape(call: OperatorCall) -> list[int]:
    sizes = call.integers("kernel_shape")
    if not sizes:
        raise Refused("kernel_shape is missing; the file is damaged")
    return sizes


def _pool_shape(call: OperatorCall) -> list[Shape]:
    shape = (*call.shape()[:2], *_count_positions(call, _read_kernel_shape(call), bool(call.integer("ceil_mode", 0))))
    return [shape] * len(call.node.outputs)


def _read_pooling(lifter: Lifter, call: OperatorCall) -> dict[str, Any]:
    lifter.chw(call)
    size = _read_kernel_shape(call)
    strides, dilations, pads = _read_window(call, size)
    if dilations != [1, 1]:
        raise Refused("a pooling with dilation has no form in a cfg")
    return {"size": size, "strides": strides, "pads": pads}


def _lift_maxpool(lifter: Lifter, call: OperatorCall) -> None:
    if len(call.node.outputs) > 1 and call.node.outputs[1]:
        raise Refused("the places of maxima have no form in a cfg")
    lifter.apply(call, "maxpool", **_read_pooling(lifter, call))


def _lift_avgpool(lifter: Lifter, call: OperatorCall) -> None:
    values, (channels, *sides) = _read_pooling(lifter, call), lifter.chw(call)
    if values["size"] == sides and not any(values["pads"]):
        lifter.add(call, "global", call.node.inputs[:1], (channels, 1, 1))
        return
    is_padding_counted = bool(call.integer("count_include_pad", 0)) and any(values["pads"])
    if is_padding_counted and call.integer("ceil_mode", 0):
        raise Refused("ceil_mode with count_include_pad has no form in a cfg; export it without ceil_mode")
    lifter.apply(call, "avgpool", counted=is_padding_counted, **values)


def _reduced_shape(call: OperatorCall) -> Shape:
    shape, axes = call.shape(), call.axes()
    keep = bool(call.integer("keepdims", 1))
    reduced_axes = range(len(shape)) if axes is None else axes
    if 0 in shape:
        raise Refused("reduces a tensor without values")
    return tuple(1 if axis in reduced_axes else side for axis, side in enumerate(shape) if keep or axis not in reduced_axes)


def _reduction(function: Callable[..., ArrayLike], lift: Callable[[Lifter, OperatorCall], object] | None = None) -> Operator:
    def computed(call: OperatorCall) -> Array:
        axes = call.axes()
        keep = bool(call.integer("keepdims", 1))
        return np.asarray(function(call.array(0), axis=None if axes is None else tuple(axes), keepdims=keep))

    return Operator(_reduced_shape, computed, lift, work=2, keeps_sign=function is np.mean, inputs=(1, 2))


def _lift_mean(lifter: Lifter, call: OperatorCall) -> None:
    if len(call.shape()) != 4 or set(call.axes() or ()) != {2, 3}:
        raise Refused("only means over height and width have a form in a cfg")
    lifter.apply(call, "global")


def _gemm_shape(call: OperatorCall) -> Shape:
    a, b = (call.shape(index)[:: -1 if call.integer(name, 0) else 1] for index, name in ((0, "transA"), (1, "transB")))
    if len(a) != 2 or len(b) != 2 or a[1] != b[0]:
        raise Refused(f"matrices of the shapes {list(a)[:8]} and {list(b)[:8]} do not fit; the file is damaged")
    return (a[0], b[1])


def _matmul_shape(call: OperatorCall) -> Shape:
    a, b = call.shape(), call.shape(1)
    if len(a) > 1 and b == a[-1:]:  # a vector
        return a[:-1]
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise Refused(f"matrices of the shapes {list(a)[:8]} and {list(b)[:8]} do not fit; the file is damaged")
    return (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])


def _lift_dense(lifter: Lifter, call: OperatorCall) -> None:
    weights, transposed = call.array(1), True
    if call.node.operator == "Gemm":
        if call.number("alpha", 1.0) != 1.0 or call.number("beta", 1.0) != 1.0 or call.integer("transA", 0):
            raise Refused("alpha and beta must be 1 and transA 0")
        transposed = not call.integer("transB", 0)
    lifter.chw(call)
    if len(call.shape()) != 2 or weights.ndim != 2:
        raise Refused("only rows of values are multiplied by matrices; attention has no form in a cfg")
    matrix = weights.T if transposed else weights
    lifter.apply(
        call,
        "dense",
        weights=matrix,
        weights_name=call.node.inputs[1],
        transposed=transposed,
        bias=_read_bias(call, len(matrix)),
    )


OPERATORS: dict[str, Operator] = {
    "Conv": Operator(
        _conv_shape,
        _compute_conv,
        _lift_conv,
        multiplies=lambda call: math.prod(_conv_shape(call)) * call.shape(1)[1],
        inputs=(2, 3),
    ),
    "ConvTranspose": Operator(_deconv_shape, lift=_lift_deconv, inputs=(2, 3)),
    "MaxPool": Operator(_pool_shape, lift=_lift_maxpool, keeps_sign=True),
    "AveragePool": Operator(_pool_shape, lift=_lift_avgpool, keeps_sign=True),
    "GlobalAveragePool": Operator(
        lambda call: (*call.shape()[:2], *[1] * (len(call.shape()) - 2)),
        lift=lambda lifter, call: lifter.apply(call, "global"),
        keeps_sign=True,
    ),
    "ReduceMean": _reduction(np.mean, _lift_mean),
    "ReduceSum": _reduction(np.sum),
    "ReduceMax": _reduction(np.max),
    "ReduceProd": _reduction(np.prod),
    "ReduceSumSquare": _reduction(lambda x, **axes: np.sum(x * x, **axes)),
    "ReduceL2": _reduction(lambda x, **axes: np.sqrt(np.sum(x * x, **axes))),
    "Gemm": Operator(_gemm_shape, lift=_lift_dense, inputs=(2, 3)),
    "MatMul": Operator(
        _matmul_shape,
        lambda call: _multiply_matrices(call.array(0), call.array(1)),
        _lift_dense,
        multiplies=lambda call: math.prod(_matmul_shape(call)) * call.shape()[-1],
        inputs=(2, 2),
    ),
}
