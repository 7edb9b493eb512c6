# SPDX-License-Identifier: MIT
"""Nodes as items, as far as each has a form in a cfg; the others, and what reads them, lie beyond."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from mpnet.importing.evaluate import axes_of, parts_of, slices_of
from mpnet.importing.graph import Array, Graph, Node, Refused
from mpnet.importing.items import Body
from mpnet.importing.lift_activations import ACTIVATIONS
from mpnet.importing.lift_sizes import SIZES
from mpnet.importing.lifter import Lifter
from mpnet.importing.shapes import Place, window


def lift(graph: Graph) -> Body:
    """Everything that is computed of the image by operations that layers have."""
    lifter = Lifter(graph)
    for node in graph.nodes:
        if not any(name in lifter.body.shapes for name in node.inputs):
            continue
        if any(name and name not in lifter.body.shapes and name not in graph.constants for name in node.inputs):
            continue  # reads something beyond
        function = _LIFTS.get(node.operator)
        try:
            if function is None:
                raise Refused("has no form in a cfg; name tensors before it with --heads, or export the model without it")
            function(lifter, node)
        except Refused as reason:
            lifter.body.reasons[node.name] = str(reason)
        except (KeyError, ValueError, IndexError, TypeError, AssertionError, ZeroDivisionError, OverflowError):
            lifter.body.reasons[node.name] = "has shapes or values that are not fixed or do not fit; export it static"
    return lifter.body


def _conv(to: Lifter, node: Node) -> None:
    weights = to.constant(node, 1)
    if weights is None or weights.ndim != 4:
        raise Refused("only convolutions over two axes have a form in a cfg")
    strides, dilations, pads = window(Place(to.graph, node), 2, weights.shape[2:])
    to.add(
        node,
        "conv",
        node.inputs[:1],
        to.result(node),
        weights=weights,
        weights_name=node.inputs[1],
        bias=_bias(to, node, len(weights)),
        strides=strides,
        dilations=dilations,
        pads=pads,
        groups=int(node.attributes.get("group", 1)),
    )


def _bias(to: Lifter, node: Node, filters: int) -> Array:
    bias = to.constant(node, 2)
    return np.zeros(filters, np.float32) if bias is None else np.asarray(bias, np.float32).ravel()


def _deconv(to: Lifter, node: Node) -> None:
    weights = to.constant(node, 1)
    assert weights is not None
    strides, dilations, pads = window(Place(to.graph, node), 2, weights.shape[2:])
    square = weights.shape[2] == weights.shape[3] and len(set(strides)) == 1 and len(set(pads)) == 1 and set(dilations) == {1}
    if (
        node.attributes.get("group", 1) != 1
        or any(node.attributes.get("output_padding") or ())
        or not square
        or (node.attributes.get("auto_pad", "NOTSET") != "NOTSET" or pads[0] > weights.shape[2] - 1)
    ):
        raise Refused("transposed convolutions are square, of one group, with equal padding; export it as Resize and Conv")
    to.add(
        node,
        "deconv",
        node.inputs[:1],
        to.result(node),
        weights=weights,
        weights_name=node.inputs[1],
        bias=_bias(to, node, weights.shape[1]),
        stride=strides[0],
        padding=pads[0],
    )


def _gemm(to: Lifter, node: Node) -> None:
    weights = to.constant(node, 1)
    assert weights is not None
    if node.operator == "Gemm":
        if node.attributes.get("alpha", 1.0) != 1.0 or node.attributes.get("beta", 1.0) != 1.0 or node.attributes.get("transA"):
            raise Refused("alpha and beta must be 1 and transA 0")
        matrix = weights if node.attributes.get("transB") else weights.T
    else:
        matrix = weights.T
    if to.rank(node.inputs[0]) != 2:
        raise Refused("only rows of values are multiplied by matrices; attention has no form in a cfg")
    bias = _bias(to, node, len(matrix))
    to.add(
        node,
        "dense",
        node.inputs[:1],
        to.result(node),
        weights=matrix,
        weights_name=node.inputs[1],
        transposed=matrix is not weights,
        bias=np.broadcast_to(bias, len(matrix)),
    )


def _batch_norm(to: Lifter, node: Node) -> None:
    scale, shift, mean, variance = (np.asarray(to.constant(node, at), np.float64) for at in range(1, 5))
    factor = scale / np.sqrt(variance + float(node.attributes.get("epsilon", 1e-5)))
    to.add(node, "affine", node.inputs[:1], to.result(node), scale=factor, shift=shift - mean * factor)


def _maxpool(to: Lifter, node: Node) -> None:
    if len(node.outputs) > 1 and node.outputs[1]:
        raise Refused("the places of maxima have no form in a cfg")
    to.add(node, "maxpool", node.inputs[:1], to.result(node), **_pooling(to, node))


def _avgpool(to: Lifter, node: Node) -> None:
    values = _pooling(to, node)
    shape = to.body.shapes[node.inputs[0]]
    if values["size"] == list(shape[1:]) and not any(values["pads"]):
        to.add(node, "global", node.inputs[:1], (shape[0], 1, 1))
        return
    counted = bool(node.attributes.get("count_include_pad", 0)) and any(values["pads"])
    if counted and node.attributes.get("ceil_mode", 0):
        raise Refused("ceil_mode with count_include_pad has no form in a cfg; export it without ceil_mode")
    to.add(node, "avgpool", node.inputs[:1], to.result(node), counted=counted, **values)


def _pooling(to: Lifter, node: Node) -> dict[str, Any]:
    size = [int(v) for v in node.attributes["kernel_shape"]]
    strides, dilations, pads = window(Place(to.graph, node), 2, size)
    if dilations != [1, 1]:
        raise Refused("a pooling with dilation has no form in a cfg")
    return {"size": size, "strides": strides, "pads": pads}


def _global(to: Lifter, node: Node) -> None:
    to.add(node, "global", node.inputs[:1], to.result(node))


def _mean(to: Lifter, node: Node) -> None:
    axes = axes_of(node.attributes, [None, *(to.constant(node, at) for at in range(1, len(node.inputs)))])
    if to.rank(node.inputs[0]) != 4 or axes is None or {axis % 4 for axis in axes} != {2, 3}:
        raise Refused("only means over height and width have a form in a cfg")
    _global(to, node)


def _concat(to: Lifter, node: Node) -> None:
    if int(node.attributes["axis"]) not in (1, -3) or any(name in to.graph.constants for name in node.inputs):
        raise Refused("only tensors of layers are joined, along channels")
    if to.rank(node.inputs[0]) != 4:
        raise Refused("rows of values are not joined; only channels of tensors are")
    to.add(node, "concat", node.inputs, to.result(node))


def _split(to: Lifter, node: Node) -> None:
    if int(node.attributes.get("axis", 0)) % to.rank(node.inputs[0]) != 1:
        raise Refused("only channels are split")
    channels = to.body.shapes[node.inputs[0]][0]
    first = 0
    given = [None, to.constant(node, 1)]
    for at, part in enumerate(parts_of(node.attributes, given, channels, len(node.outputs))):
        to.add(node, "slice", node.inputs[:1], to.result(node, at), node.outputs[at], first=first)
        first += part


def _slice(to: Lifter, node: Node) -> None:
    given = [None, *(to.constant(node, at) for at in range(1, len(node.inputs)))]
    rank, x = to.rank(node.inputs[0]), node.inputs[0]
    shape = (1, *to.body.shapes[x])[:rank]
    parts = [part.indices(side) for part, side in zip(slices_of(node.attributes, given, rank), shape, strict=True)]
    whole = [part == (0, side, 1) for part, side in zip(parts, shape, strict=True)]
    if all(whole[:1] + whole[2:]) and parts[1][2] == 1:
        to.add(node, "slice", [x], to.result(node), first=parts[1][0])
    elif rank == 4 and all(whole[:2]) and all(part[2] >= 1 for part in parts[2:]):
        ends = all(part[1] == side for part, side in zip(parts[2:], shape[2:], strict=True))
        if not ends:
            raise Refused("a part of the image has no form in a cfg")
        to.add(node, "sample", [x], to.result(node), start=(parts[2][0], parts[3][0]), step=(parts[2][2], parts[3][2]))
    else:
        raise Refused("only channels in their order, or every n-th pixel, are taken")


def _space_to_depth(to: Lifter, node: Node) -> None:
    to.add(node, "space_to_depth", node.inputs[:1], to.result(node), block=int(node.attributes["blocksize"]), order=None)


def _sum(to: Lifter, node: Node) -> None:
    if len(node.inputs) == 1:
        raise Refused("a sum of one tensor")
    constants = [at for at, name in enumerate(node.inputs) if name in to.graph.constants]
    if constants:
        return _line(to, node, constants)
    shapes = {to.body.shapes[name] for name in node.inputs}
    if len(shapes) > 1:
        raise Refused(f"adds tensors of different shapes {sorted(shapes)}")
    if node.operator == "Sub":
        other = to.add(
            node,
            "affine",
            node.inputs[1:],
            to.result(node),
            f"{node.output}/minus",
            scale=np.full(to.result(node)[0], -1.0),
            shift=np.zeros(to.result(node)[0]),
        )
        to.add(node, "add", [node.inputs[0], other], to.result(node))
        return None
    x = node.inputs[0]
    for number, other in enumerate(node.inputs[1:], 1):
        last = number == len(node.inputs) - 1
        x = to.add(node, "add", [x, other], to.result(node), node.output if last else f"{node.output}/{number}")
    return None


def _line(to: Lifter, node: Node, constants: list[int]) -> None:
    """A sum, difference, product or quotient with a constant that has a value per channel."""
    [at] = constants
    [x] = [name for number, name in enumerate(node.inputs) if number != at]
    value, shape = np.asarray(to.graph.constants[node.inputs[at]], np.float64), to.body.shapes[x]
    whole = (1, *shape) if to.rank(x) == 4 else (1, shape[0])
    sides = (1,) * (len(whole) - value.ndim) + value.shape
    if len(sides) != len(whole) or any(side != 1 for place, side in enumerate(sides) if place != 1):
        raise Refused("its constant differs by pixel; one value per channel is possible")
    per_channel = np.broadcast_to(value.ravel(), shape[0]) if value.size in (1, shape[0]) else None
    if per_channel is None or to.result(node) != shape:
        raise Refused("its constant does not fit the tensor's channels")
    ones, zeros = np.ones(shape[0]), np.zeros(shape[0])
    if node.operator == "Div" and at == 0:
        raise Refused("a constant divided by a tensor has no form in a cfg")
    scale, shift = {
        "Add": (ones, per_channel),
        "Sum": (ones, per_channel),
        "Mul": (per_channel, zeros),
        "Sub": (ones, -per_channel) if at == 1 else (-ones, per_channel),
        "Div": (1 / per_channel if node.operator == "Div" else ones, zeros),
    }[node.operator]
    to.add(node, "affine", [x], shape, scale=scale, shift=shift)


def _product(to: Lifter, node: Node) -> None:
    constants = [at for at, name in enumerate(node.inputs) if name in to.graph.constants]
    if constants:
        return _line(to, node, constants)
    if node.operator == "Div":
        raise Refused("a quotient of two tensors has no form in a cfg")
    result = to.result(node)
    a, b = node.inputs
    if to.body.shapes[a] != result:
        a, b = b, a
    c, h, w = result
    kinds = {(c, h, w): "same", (c, 1, 1): "per_channel", (1, h, w): "per_pixel"}
    if to.body.shapes[a] != result or to.body.shapes[b] not in kinds:
        raise Refused("its factors have shapes that no layer multiplies; equal ones, one per channel or per pixel are possible")
    to.add(node, "mul", [a, b], result, operand=kinds[to.body.shapes[b]])
    return None


def _pad(to: Lifter, node: Node) -> None:
    pads = node.attributes.get("pads", to.constant(node, 1) if len(node.inputs) > 1 else None)
    numbers = [int(v) for v in np.asarray(pads).ravel()]
    value = node.attributes.get("value", to.constant(node, 2))
    number = 0.0 if value is None else float(np.asarray(value).ravel()[0])
    # As small as numbers are: what a maximum never takes.
    lowest = number <= float(np.finfo(np.float32).min)
    mode = node.attributes.get("mode", "constant")
    edge = mode == "edge"
    if (
        mode not in ("constant", "edge")
        or not (number == 0 or lowest)
        or len(numbers) != 8
        or min(numbers) < 0
        or (numbers[0] or numbers[4] or (len(node.inputs) > 3 and node.inputs[3]))
    ):
        raise Refused("only zeros or the nearest values around an image, or its channels, have a form in a cfg")
    to.add(
        node,
        "pad",
        node.inputs[:1],
        to.result(node),
        pads=[numbers[2], numbers[3], numbers[6], numbers[7]],
        channels=[numbers[1], numbers[5]],
        edge=edge,
        lowest=lowest and not edge,
    )


def _flatten(to: Lifter, node: Node) -> None:
    shape = to.body.shapes[node.inputs[0]]
    result = to.result(node)
    if result == shape or result == (shape[0] * shape[1] * shape[2], 1, 1):
        to.add(node, "flatten", node.inputs[:1], result)
    else:
        raise Refused("puts values elsewhere; no layer does that")


def _softmax(to: Lifter, node: Node) -> None:
    axis = int(node.attributes.get("axis", -1)) % to.rank(node.inputs[0])
    shape = to.result(node)
    if shape[1:] != (1, 1) or axis != 1:
        raise Refused("only the classes of a classifier go through a softmax")
    to.add(node, "softmax", node.inputs[:1], shape)


_LIFTS: dict[str, Callable[[Lifter, Node], None]] = {
    **ACTIVATIONS,
    **SIZES,
    "Conv": _conv,
    "ConvTranspose": _deconv,
    "Gemm": _gemm,
    "MatMul": _gemm,
    "BatchNormalization": _batch_norm,
    "MaxPool": _maxpool,
    "AveragePool": _avgpool,
    "GlobalAveragePool": _global,
    "ReduceMean": _mean,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Add": _sum,
    "Sub": _sum,
    "Sum": _sum,
    "Mul": _product,
    "Div": _product,
    "Pad": _pad,
    "Flatten": _flatten,
    "Reshape": _flatten,
    "Squeeze": _flatten,
    "Unsqueeze": _flatten,
    "Softmax": _softmax,
    "SpaceToDepth": _space_to_depth,
}
