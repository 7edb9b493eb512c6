# SPDX-License-Identifier: MIT
"""Operators that move, repeat and join values: shapes, slices, padding, larger images, constants."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Callable

import numpy as np

from mpnet.importing.graph import Array, Refused
from mpnet.importing.operators.record import ANY_COUNT, MAX_RANK, Lifter, Operator, OperatorCall, Shape

_ROUNDS: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
}
_HALF_PIXEL = ("half_pixel", "pytorch_half_pixel")
_SCALE_SLACK = 1e-4
"""Of a pixel: what a scale of 24 bits, such as 1.3333334, may be off from a whole number of pixels."""
_MAX_FILTER_VALUES, _MAX_FACTOR, _MAX_CHANNELS = 1 << 24, 32, 1 << 16


def _compute_reshape(call: OperatorCall) -> Array:
    shape, new_shape = call.shape(), call.integers("shape", 1)
    if new_shape is None:
        raise Refused("its shape is missing; the file is damaged")
    if 0 in new_shape and not call.integer("allowzero", 0):
        new_shape = [shape[axis] if side == 0 and axis < len(shape) else side for axis, side in enumerate(new_shape)]
    return call.array(0).reshape(new_shape)


def _compute_unsqueeze(call: OperatorCall) -> Array:
    new_axes = call.integers("axes", 1) or []
    rank = len(call.shape()) + len(new_axes)
    axes, sides = call.axes(rank=rank) or [], iter(call.shape())
    return call.array(0).reshape([1 if axis in axes else next(sides) for axis in range(rank)])


def _compute_squeeze(call: OperatorCall) -> Array:
    axes = call.axes()
    return np.squeeze(call.array(0), None if axes is None else tuple(axes))


def _compute_flatten(call: OperatorCall) -> Array:
    shape, axis = call.shape(), call.integer("axis", 1)
    axis += len(shape) if axis < 0 else 0
    return call.array(0).reshape(math.prod(shape[:axis]), math.prod(shape[axis:]))


def _read_slices(call: OperatorCall) -> tuple[slice, ...]:
    """Return what Slice takes of each axis."""
    rank, starts, ends = len(call.shape()), call.integers("starts", 1), call.integers("ends", 2)
    axes, steps = call.integers("axes", 3), call.integers("steps", 4)
    if starts is None or ends is None:
        raise Refused("starts or ends are missing; the file is damaged")
    slices = [slice(None)] * rank
    axes, steps = list(range(len(starts))) if axes is None else axes, [1] * len(starts) if steps is None else steps
    if {len(starts)} != {len(ends), len(axes), len(steps)}:
        raise Refused("starts, ends, axes and steps are not as many; the file is damaged")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0 or not -rank <= axis < rank:
            raise Refused(f"a slice along axis {axis} by steps of {step}; the file is damaged")
        # Reversed up to the first: what NumPy says with None.
        slices[axis] = slice(start, None if step < 0 and end < -(1 << 30) else end, step)
    return tuple(slices)


def _read_split_lengths(call: OperatorCall) -> list[int]:
    """Return the lengths that Split cuts an axis into."""
    length, lengths = call.shape()[call.axis(0)], call.integers("split", 1)
    if lengths is None:
        count = call.integer("num_outputs", len(call.node.outputs) or 1)
        if not 0 < count <= len(call.node.outputs):
            raise Refused(f"{count} parts for {len(call.node.outputs)} results; the file is damaged")
        share = -(-length // count)
        lengths = [min(share, length - share * index) for index in range(count)]
    if sum(lengths) != length or min(lengths, default=0) < 0 or len(lengths) < len(call.node.outputs):
        raise Refused(f"parts {lengths[:8]} of {length} for {len(call.node.outputs)} results; the file is damaged")
    return lengths


def _compute_split(call: OperatorCall) -> list[Array]:
    return np.split(call.array(0), np.cumsum(_read_split_lengths(call))[:-1].tolist(), call.axis(0))


def _compute_transpose(call: OperatorCall) -> Array:
    return np.transpose(call.array(0), call.integers("perm"))


def _concat_shape(call: OperatorCall) -> Shape:
    shapes, axis = [call.shape(index) for index in range(len(call.arrays))], call.axis(None)
    if len({shape[:axis] + shape[axis + 1 :] for shape in shapes}) > 1 or len({len(shape) for shape in shapes}) > 1:
        raise Refused("joins tensors whose other sides differ; the file is damaged")
    return (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])


def _gather_shape(call: OperatorCall) -> Shape:
    shape, axis = call.shape(), call.axis(0)
    return (*shape[:axis], *call.shape(1), *shape[axis + 1 :])


def _tile_shape(call: OperatorCall) -> Shape:
    shape = call.shape()
    return tuple(side * times for side, times in zip(shape, call.integers("repeats", 1, len(shape)) or (), strict=True))


def _expand_shape(call: OperatorCall) -> Shape:
    return np.broadcast_shapes(call.shape(), tuple(call.integers("shape", 1, max_count=MAX_RANK) or ()))


def _read_pads(call: OperatorCall) -> list[int]:
    """Return the pads before every axis, then behind every axis."""
    rank, axes = len(call.shape()), call.axes(3)
    pads = call.integers("pads", 1, 2 * (rank if axes is None else len(axes)))
    if pads is None:
        raise Refused("pads are missing; the file is damaged")
    if axes is None:
        return pads
    before, behind = (dict(zip(axes, half, strict=True)) for half in (pads[: len(axes)], pads[len(axes) :]))
    return [padded.get(axis, 0) for padded in (before, behind) for axis in range(rank)]


def _pad_shape(call: OperatorCall) -> Shape:
    shape, pads = call.shape(), _read_pads(call)
    return tuple(side + pads[axis] + pads[len(shape) + axis] for axis, side in enumerate(shape))


def _blocks_shape(call: OperatorCall) -> Shape:
    (n, c, h, w), block = call.shape(), call.integer("blocksize")
    if block < 1:
        raise Refused(f"blocks of {block}; the file is damaged")
    if call.node.operator == "SpaceToDepth":
        return (n, c * block * block, h // block, w // block)
    return (n, c // (block * block), h * block, w * block)


def _read_sizes(call: OperatorCall) -> list[float]:
    """Return the sides of a Resize's result; those that come from scales need not be whole numbers."""
    shape = call.shape()
    if call.node.operator == "Upsample" or len(call.arrays) == 2:
        scales, sizes = call.constant(1), None
        scales = np.asarray(call.node.attributes.get("scales", ()), np.float64) if scales is None else scales
    else:
        scales, sizes = call.constant(2), call.constant(3)
    stated = sizes if sizes is not None and sizes.size else scales
    axes = call.integers("axes")
    axes = list(range(len(shape))) if axes is None else axes
    if stated is None or len(axes) != stated.size or not np.isfinite(stated).all():
        raise Refused("its scales do not fit; the file is damaged")
    if any(not -len(shape) <= axis < len(shape) for axis in axes):
        raise Refused(f"axes {axes[:8]} of a tensor of {len(shape)} axes; the file is damaged")
    if stated is sizes and call.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Refused("it keeps the aspect (keep_aspect_ratio_policy); export it with the sizes of its result")
    sides = [float(side) for side in shape]
    for axis, value in zip(axes, stated.ravel().tolist(), strict=True):
        sides[axis] = float(value) if stated is sizes else shape[axis] * float(value)
    return sides


def _resize_shape(call: OperatorCall) -> Shape:
    return tuple(math.floor(side + _SCALE_SLACK) for side in _read_sizes(call))


def _read_range_bounds(call: OperatorCall) -> tuple[float, float, float]:
    start, stop, step = (call.array(index) for index in range(3))
    return start.item(), stop.item(), step.item()


def _range_shape(call: OperatorCall) -> Shape:
    start, stop, step = _read_range_bounds(call)
    return (max(0, math.ceil((stop - start) / step)),)


def _compute_filled(call: OperatorCall) -> Array:
    value = np.asarray(call.node.attributes.get("value", np.zeros(1, np.float32)))
    return np.full(call.integers("shape", 0) or (), value.ravel()[0])


def _compute_constant(call: OperatorCall) -> Array:
    dtypes = (
        ("value", None),
        ("value_float", np.float32),
        ("value_int", np.int64),
        ("value_floats", np.float32),
        ("value_ints", np.int64),
    )
    for name, dtype in dtypes:
        if name in call.node.attributes:
            return np.asarray(call.node.attributes[name], dtype)
    raise Refused("a constant that is no array")


def _lift_concat(lifter: Lifter, call: OperatorCall) -> None:
    if call.integer("axis") not in (1, -3) or any(name in lifter.graph.constants for name in call.node.inputs):
        raise Refused("only tensors of layers are joined, along channels")
    if len(call.shape()) != 4:
        raise Refused("rows of values are not joined; only channels of tensors are")
    lifter.add(call, "concat", call.node.inputs, lifter.result(call))


def _lift_split(lifter: Lifter, call: OperatorCall) -> None:
    if call.axis(0) != 1:
        raise Refused("only channels are split")
    lifter.chw(call)
    first_channel = 0
    for index, channels in zip(range(len(call.node.outputs)), _read_split_lengths(call), strict=False):
        if call.node.outputs[index]:
            lifter.add(
                call, "slice", call.node.inputs[:1], lifter.result(call, index), call.node.outputs[index], first=first_channel
            )
        first_channel += channels


def _lift_slice(lifter: Lifter, call: OperatorCall) -> None:
    rank = len(call.shape())
    shape = (1, *lifter.chw(call))[:rank]
    bounds_by_axis = [bounds.indices(side) for bounds, side in zip(_read_slices(call), shape, strict=True)]
    is_full = [bounds == (0, side, 1) for bounds, side in zip(bounds_by_axis, shape, strict=True)]
    if all(is_full[:1] + is_full[2:]) and bounds_by_axis[1][2] == 1:
        lifter.apply(call, "slice", first=bounds_by_axis[1][0])
    elif rank == 4 and all(is_full[:1] + is_full[2:]):
        _add_channels(lifter, call, np.arange(*bounds_by_axis[1]))
    elif rank == 4 and all(is_full[:2]) and all(bounds[2] >= 1 for bounds in bounds_by_axis[2:]):
        if any(bounds[1] != side for bounds, side in zip(bounds_by_axis[2:], shape[2:], strict=True)):
            raise Refused("a part of the image has no form in a cfg")
        lifter.apply(
            call,
            "sample",
            start=(bounds_by_axis[2][0], bounds_by_axis[3][0]),
            step=(bounds_by_axis[2][2], bounds_by_axis[3][2]),
        )
    else:
        raise Refused("only channels in their order, or every n-th pixel, are taken")


def _lift_flatten(lifter: Lifter, call: OperatorCall) -> None:
    shape, result = lifter.chw(call), lifter.result(call)
    if result not in (shape, (math.prod(shape), 1, 1)):
        raise Refused("puts values elsewhere; no layer does that")
    lifter.apply(call, "flatten")


def _lift_pad(lifter: Lifter, call: OperatorCall) -> None:
    value, mode = call.number("value", 0.0, 2), call.text("mode", "constant")
    # As small as numbers are: what a maximum never takes.
    lowest = value <= float(np.finfo(np.float32).min)
    edge = mode == "edge"
    pads = _read_pads(call)
    if mode not in ("constant", "edge") or not (value == 0 or lowest) or len(pads) != 8 or min(pads) < 0 or pads[0] or pads[4]:
        raise Refused("only zeros or the nearest values around an image, or its channels, have a form in a cfg")
    lifter.apply(
        call,
        "pad",
        pads=[pads[2], pads[3], pads[6], pads[7]],
        channels=[pads[1], pads[5]],
        edge=edge,
        lowest=lowest and not edge,
    )


def _lift_space_to_depth(lifter: Lifter, call: OperatorCall) -> None:
    lifter.apply(call, "space_to_depth", block=call.integer("blocksize"), order=None)


def _lift_depth_to_space(lifter: Lifter, call: OperatorCall) -> None:
    block, (channels, height, width) = call.integer("blocksize"), lifter.chw(call)
    x, result, mode = call.node.inputs[0], lifter.result(call), call.text("mode", "DCR", ("DCR", "CRD"))
    if result[0] * block * block != channels:
        raise Refused(f"blocks of {block} do not fit {channels} channels; the file is damaged")
    if mode == "CRD" and channels <= _MAX_CHANNELS:
        # The pixels of a block stand behind each channel; a layer has the channels behind each pixel.
        order = np.arange(channels).reshape(-1, block * block).T.ravel()
        weights = (order[:, None] == np.arange(channels)).astype(np.float32).reshape(channels, channels, 1, 1)
        order_to_fold = None if lifter.graph.quantization else order
        shape, name = (channels, height, width), f"{call.node.output}/order"
        x = lifter.add_filter(call, x, shape, weights, output=name, order=order_to_fold)
    lifter.add(call, "depth_to_space", [x], result, stride=block)


def _lift_resize(lifter: Lifter, call: OperatorCall) -> None:
    mode, (channels, height, width), result = call.text("mode", "nearest"), lifter.chw(call), lifter.result(call)
    factor = result[1] // height
    is_integer_factor = factor >= 1 and result == (channels, height * factor, width * factor)
    if any(abs(stated - side) > 2 * _SCALE_SLACK for stated, side in zip(_read_sizes(call)[1:], result, strict=True)):
        raise Refused("its scales give no whole number of pixels, and places in between; export it with sizes")
    if call.integer("antialias", 0) and (result[1] < height or result[2] < width):
        raise Refused("a smaller image of mixed pixels (antialias=1) has no form in a cfg")
    coordinates = call.text("coordinate_transformation_mode", "half_pixel")
    if mode == "linear" and is_integer_factor and factor > 1:
        _lift_bilinear(lifter, call, factor, coordinates)
        return
    if (
        mode == "linear"
        and (channels, height, width) == (result[0], 2 * result[1], 2 * result[2])
        and coordinates in _HALF_PIXEL
    ):
        # Each pixel of the result lies in the middle of four.
        lifter.apply(call, "avgpool", size=[2, 2], strides=[2, 2], pads=[0] * 4, counted=False)
        return
    common = math.gcd(result[1], height), math.gcd(result[2], width)
    finer_factor, step = (result[1] // common[0], result[2] // common[1]), (height // common[0], width // common[1])
    # Nearest pixels of a finer image: every n-th of its pixels.
    if (
        mode == "nearest"
        and not is_integer_factor
        and finer_factor[0] == finer_factor[1] <= _MAX_FACTOR
        and result[0] == channels
    ):
        if coordinates != "asymmetric" or call.text("nearest_mode", "round_prefer_floor") != "floor":
            raise Refused(f"{coordinates} to {result[2]}x{result[1]} has no form in a cfg; asymmetric with floor has")
        finer = (channels, height * finer_factor[0], width * finer_factor[1])
        x = lifter.add(call, "upsample", call.node.inputs[:1], finer, f"{call.node.output}/finer", factor=finer_factor[0])
        lifter.add(call, "sample", [x], result, start=(0, 0), step=step)
        return
    if mode != "nearest" or not is_integer_factor:
        raise Refused(f"mode {mode} to {result[2]}x{result[1]} has no form in a cfg; nearest by a whole factor has")
    rounding = call.text("nearest_mode", "round_prefer_floor", tuple(_ROUNDS))
    positions = np.arange(result[1], dtype=np.float64)
    if coordinates in _HALF_PIXEL:
        positions = (positions + 0.5) / factor - 0.5
    elif coordinates == "asymmetric" or call.node.operator == "Upsample":
        positions, rounding = positions / factor, "floor" if call.node.operator == "Upsample" else rounding
    else:
        raise Refused(f"coordinates {coordinates} have no form in a cfg; half_pixel and asymmetric have")
    if not np.array_equal(np.clip(_ROUNDS[rounding](positions), 0, height - 1), np.arange(result[1]) // factor):
        raise Refused(f"{coordinates} with {rounding} copies other pixels than Darknet's upsampling")
    lifter.apply(call, "upsample", factor=factor)


def _lift_bilinear(lifter: Lifter, call: OperatorCall, factor: int, coordinates: str) -> None:
    """Append nearest pixels, then a filter that mixes in the neighbour's share.

    With half_pixel, at the p-th of a pixel's `factor` copies, counted from its border, that share is 1/2 - (p + 1/2) / factor.
    """
    if coordinates not in (*_HALF_PIXEL, "asymmetric"):
        raise Refused(f"bilinear with coordinates {coordinates} has no form in a cfg; half_pixel and asymmetric have")
    channels, height, width = result = lifter.result(call)
    if channels * factor * factor > _MAX_FILTER_VALUES:
        raise Refused(f"bilinear by a factor of {factor} is larger than mpnet holds")
    if coordinates == "asymmetric":
        # The p-th copy is p / factor on the way to the next pixel: the mean of the `factor` copies that begin with it.
        line, before, behind = np.full(factor, 1 / factor), 0, factor - 1
    else:
        shares = [max(0.0, 0.5 - (p + 0.5) / factor) for p in range(factor)]
        side = [share_before - share for share_before, share in pairwise(shares) if share_before > share]
        line, before, behind = np.array([*side[::-1], 1 - 2 * sum(side), *side]), len(side), len(side)
    output = call.node.output
    x = lifter.apply(call, "upsample", f"{output}/nearest", factor=factor)
    edge = (channels, height + before + behind, width + before + behind)
    pads = [before, before, behind, behind]
    x = lifter.add(call, "pad", [x], edge, f"{output}/edge", pads=pads, channels=[0, 0], edge=True)
    weights = np.broadcast_to(np.outer(line, line).astype(np.float32), (channels, 1, len(line), len(line)))
    lifter.add_filter(call, x, result, weights, groups=channels)


def _lift_channels(lifter: Lifter, call: OperatorCall) -> None:
    _add_channels(lifter, call, np.array(call.integers("order", max_count=_MAX_CHANNELS) or (), np.int64))


def _lift_gather(lifter: Lifter, call: OperatorCall) -> None:
    order, channels = call.array(1), lifter.chw(call)[0]
    if len(call.shape()) != 4 or call.axis(0) != 1 or order.ndim != 1 or not 0 < order.size <= _MAX_CHANNELS:
        raise Refused("only channels of tensors are gathered")
    _add_channels(lifter, call, np.where(order < 0, order + channels, order))


def _add_channels(lifter: Lifter, call: OperatorCall, order: Array) -> None:
    """Append what takes channels by their numbers."""
    channels = lifter.chw(call)[0]
    if not order.size or order.min() < 0 or order.max() >= channels:
        raise Refused("takes channels that there are not; the file is damaged")
    if np.array_equal(order, np.arange(order[0], order[0] + order.size)):
        lifter.apply(call, "slice", first=int(order[0]))
        return
    weights = (order[:, None] == np.arange(channels)).astype(np.float32).reshape(order.size, channels, 1, 1)
    lifter.add_filter(
        call, call.node.inputs[0], lifter.result(call), weights, order=None if lifter.graph.quantization else order
    )


def _lift_attention(lifter: Lifter, call: OperatorCall) -> None:
    areas, scale = call.integer("areas"), call.number("scale", 0)
    heads, key = call.integer("heads"), call.integer("key")
    lifter.apply(call, "attention", heads=heads, key=key, areas=areas if areas > 1 else None, scale=scale or None)


OPERATORS: dict[str, Operator] = {
    "Reshape": Operator(None, _compute_reshape, _lift_flatten, keeps_sign=True, inputs=(1, 2)),
    "Flatten": Operator(None, _compute_flatten, _lift_flatten, keeps_sign=True),
    "Squeeze": Operator(None, _compute_squeeze, _lift_flatten, keeps_sign=True, inputs=(1, 2)),
    "Unsqueeze": Operator(None, _compute_unsqueeze, _lift_flatten, keeps_sign=True, inputs=(1, 2)),
    "Transpose": Operator(None, _compute_transpose, keeps_sign=True),
    "mpnet.Channels": Operator(
        lambda call: (1, len(call.integers("order", max_count=_MAX_CHANNELS) or ()), *call.shape()[2:]),
        lift=_lift_channels,
        keeps_sign=True,
    ),
    "mpnet.Shuffle": Operator(
        lift=lambda lifter, call: lifter.apply(call, "shuffle", groups=call.integer("groups")), keeps_sign=True
    ),
    "mpnet.Attention": Operator(lift=_lift_attention),
    "mpnet.FlattenLast": Operator(lift=lambda lifter, call: lifter.apply(call, "flatten", last=True), keeps_sign=True),
    "mpnet.Reshape": Operator(
        lift=lambda lifter, call: lifter.apply(call, "reshape", width=call.integer("width")), keeps_sign=True
    ),
    "Identity": Operator(None, lambda call: call.array(0)),
    "Slice": Operator(None, lambda call: call.array(0)[_read_slices(call)], _lift_slice, keeps_sign=True, inputs=(1, 5)),
    "Split": Operator(None, _compute_split, _lift_split, keeps_sign=True, inputs=(1, 2)),
    "Concat": Operator(
        _concat_shape,
        lambda call: np.concatenate([call.array(index) for index in range(len(call.arrays))], call.axis(None)),
        _lift_concat,
        keeps_sign=True,
        inputs=ANY_COUNT,
    ),
    "Gather": Operator(
        _gather_shape, lambda call: np.take(call.array(0), call.array(1), call.axis(0)), _lift_gather, inputs=(2, 2)
    ),
    "Tile": Operator(_tile_shape, lambda call: np.tile(call.array(0), call.integers("repeats", 1) or ()), inputs=(1, 2)),
    "Expand": Operator(
        _expand_shape, lambda call: np.array(np.broadcast_to(call.array(0), _expand_shape(call))), inputs=(1, 2)
    ),
    "Pad": Operator(_pad_shape, lift=_lift_pad, keeps_sign=True, inputs=(1, 4)),
    "Resize": Operator(_resize_shape, lift=_lift_resize, keeps_sign=True, inputs=(1, 4)),
    "Upsample": Operator(_resize_shape, lift=_lift_resize, inputs=(1, 2)),
    "SpaceToDepth": Operator(_blocks_shape, lift=_lift_space_to_depth),
    "DepthToSpace": Operator(_blocks_shape, lift=_lift_depth_to_space),
    "Shape": Operator(
        lambda call: (len(call.shape()),),
        lambda call: np.array(call.shape()[call.integer("start", 0) : call.integer("end", 1 << 30)], np.int64),
    ),
    "Size": Operator(lambda call: (), lambda call: np.array(call.array(0).size, np.int64)),
    "Constant": Operator(lambda call: _compute_constant(call).shape, _compute_constant, inputs=(0, 0)),
    "ConstantOfShape": Operator(lambda call: tuple(call.integers("shape", 0) or ()), _compute_filled),
    "Range": Operator(
        _range_shape, lambda call: np.arange(*_read_range_bounds(call)).astype(call.array(0).dtype), inputs=(3, 3)
    ),
}
