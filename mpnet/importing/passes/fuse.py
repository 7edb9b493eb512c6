# SPDX-License-Identifier: MIT
"""Operations that other programs write as several and layers do at once: activations, batch norms, padding, focus."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpnet.importing.layer_graph import LayerGraph, LayerOperation
from mpnet.importing.passes.operation_rewriter import OperationRewriter

_WEIGHTED = ("conv", "deconv", "dense")
_ACTIVATED = (*_WEIGHTED, "affine", "add", "mul")
_GATED = {"logistic": "swish", "hard_sigmoid": "hard_swish"}
# 6 times what float32 has for a sixth is one to this.
_ALMOST = 1e-6


def fuse(
    layers: LayerGraph,
    head_tensors: list[str],
    rounded_tensors: frozenset[str] = frozenset(),
    is_quantized: bool = False,
    merge_branches: bool = True,
) -> int:
    """Make the graph as short as layers can say it. Return how many branches of convolutions were merged with others.

    head_tensors:    tensors that must stay.
    rounded_tensors: those that are rounded before an activation, which then is a layer of its own.
    is_quantized: whether weights have codes, which a factor per input channel, and weights of another branch, would change.
    merge_branches:  whether to merge parallel convolutions.
    """
    rewriter = OperationRewriter(layers, frozenset(head_tensors), rounded_tensors)
    for rule in (
        _remove_flatten_of_pixel,
        _recognize_gates,
        _join_lines,
        _fold_line_into_weights,
        _fold_order_of_channels,
        _join_samples,
        _fold_order_of_blocks,
        _absorb_padding,
    ):
        rewriter.apply(rule)
    merged = 0
    if merge_branches and not is_quantized:
        count_before = len(layers.operations)
        rewriter.apply(_merge_branches)
        merged = count_before - len(layers.operations)
        # A batch norm of the sum.
        rewriter.apply(_fold_line_into_weights)
    rewriter.apply(_absorb_activation)
    if not is_quantized:
        rewriter.apply(_fold_line_into_next_weights)
    return merged // 2  # a branch and its sum


def _remove_flatten_of_pixel(rewriter: OperationRewriter, operation: LayerOperation) -> bool:
    """Remove a flattening of one pixel, which changes nothing."""
    x = operation.inputs[0]
    if operation.kind != "flatten" or operation.shape != rewriter.layers.shapes[x] or operation.output in rewriter.head_tensors:
        return False
    rewriter.replace(operation.output, x)
    return True


def _is_uniform_line(line: LayerOperation | None, scale: float | None = None, shift: float | None = None) -> bool:
    """Return whether an operation is a line that is the same for all channels, with this scale and shift."""
    if line is None or line.kind != "affine" or line.activation != "linear":
        return False
    a, b = line.values["scale"], line.values["shift"]
    if not ((a == a[0]).all() and (b == b[0]).all()):
        return False
    return (scale is None or abs(a[0] - scale) < _ALMOST * abs(scale)) and (shift is None or abs(b[0] - shift) < _ALMOST)


def _recognize_gates(rewriter: OperationRewriter, operation: LayerOperation) -> bool:
    """Recognize x * logistic(x) and its like as activations; relu6(x + 3) is six times a hard sigmoid."""
    if operation.kind == "activation" and operation.values["word"] == "relu6":
        line = rewriter.makers.get(operation.inputs[0])
        if line is not None and _is_uniform_line(line, 1.0, 3.0):
            inner_name = f"{operation.output}/hard_sigmoid"
            nodes, values = [*line.nodes, *operation.nodes], {"word": "hard_sigmoid"}
            rewriter.insert(LayerOperation("activation", nodes, line.inputs, inner_name, operation.shape, values), operation)
            _become_line(rewriter, operation, inner_name, 6.0)
            return True
    if operation.kind == "activation" and operation.values["word"] == "sqrt":
        # The root of what is below 0 is 0.
        relu = rewriter.maker_of_kind(operation.inputs[0], "activation")
        if relu is not None and relu.values["word"] == "relu" and rewriter.is_read_once(relu.output):
            rewriter.absorb(operation, relu)
            return True
    if operation.kind != "mul":
        return False
    for a, b in (operation.inputs, operation.inputs[::-1]):
        line = rewriter.makers.get(b)
        if line is not None and _is_uniform_line(line, shift=0.0) and operation.activation == "linear":
            # A factor of one of the two is a factor of the product.
            inner_name, factor = f"{operation.output}/product", float(line.values["scale"][0])
            inputs = [line.inputs[0] if name == b else name for name in operation.inputs]
            product = LayerOperation("mul", [*operation.nodes], inputs, inner_name, operation.shape, dict(operation.values))
            rewriter.insert(product, operation)
            operation.nodes = [*line.nodes, *operation.nodes]
            _become_line(rewriter, operation, inner_name, factor)
            return True
        gate, word = rewriter.maker_of_kind(b, "activation"), None
        if gate is None or operation.values["operand"] != "same":
            continue
        nodes = gate.nodes
        if gate.inputs[0] == a:
            word = _GATED.get(gate.values["word"])
        elif gate.values["word"] == "tanh":
            soft = rewriter.maker_of_kind(gate.inputs[0], "activation")
            if soft is not None and soft.values["word"] == "softplus" and soft.inputs[0] == a:
                word, nodes = "mish", [*soft.nodes, *gate.nodes]
        if word is not None:
            operation.kind, operation.nodes, operation.values = "activation", [*nodes, *operation.nodes], {"word": word}
            rewriter.set_inputs(operation, [a])
            return True
    return False


def _become_line(rewriter: OperationRewriter, operation: LayerOperation, x: str, factor: float) -> None:
    channels = operation.shape[0]
    operation.kind = "affine"
    operation.values = {"scale": np.full(channels, factor), "shift": np.zeros(channels)}
    rewriter.set_inputs(operation, [x])


def _join_lines(rewriter: OperationRewriter, operation: LayerOperation) -> bool:
    """Join a line of a line into one; remove a line that changes nothing."""
    if operation.kind != "affine":
        return False
    if _is_uniform_line(operation, 1.0, 0.0) and operation.output not in rewriter.head_tensors:
        maker = rewriter.makers.get(operation.inputs[0])
        if maker is not None:
            maker.nodes = [*maker.nodes, *operation.nodes]
        rewriter.replace(operation.output, operation.inputs[0])
        return True
    earlier = rewriter.maker_of_kind(operation.inputs[0], "affine")
    if earlier is None or earlier.activation != "linear" or not rewriter.is_read_once(earlier.output):
        return False
    scale, shift = operation.values["scale"], operation.values["shift"]
    operation.values |= {"scale": earlier.values["scale"] * scale, "shift": earlier.values["shift"] * scale + shift}
    rewriter.absorb(operation, earlier)
    return True


def _fold_line_into_weights(rewriter: OperationRewriter, operation: LayerOperation) -> bool:
    """Fold a line behind weights, such as a batch norm, into them."""
    maker = rewriter.maker_of_kind(operation.inputs[0], *_WEIGHTED) if operation.kind == "affine" else None
    if maker is None or maker.activation != "linear" or not rewriter.is_read_once(maker.output):
        return False
    scale, values = operation.values["scale"], dict(maker.values)
    axis = 1 if maker.kind == "deconv" else 0
    sides = [-1 if other_axis == axis else 1 for other_axis in range(values["weights"].ndim)]
    values["weights"] = (values["weights"].astype(np.float64) * scale.reshape(sides)).astype(np.float32)
    values["bias"] = (values["bias"].astype(np.float64) * scale + operation.values["shift"]).astype(np.float32)
    values |= {"activation": operation.activation, "factor": values.get("factor", 1.0) * scale}
    operation.kind, operation.values = maker.kind, values
    rewriter.absorb(operation, maker)
    return True


def _fold_line_into_next_weights(rewriter: OperationRewriter, operation: LayerOperation) -> bool:
    """Fold a line between a layer norm, or what is added behind a product, and a convolution without padding into it."""
    line = rewriter.maker_of_kind(operation.inputs[0], "affine") if operation.kind == "conv" else None
    if line is None or line.activation != "linear" or not rewriter.is_read_once(line.output):
        return False
    values = dict(operation.values)
    is_shift = rewriter.maker_of_kind(line.inputs[0], "mul") is not None and bool((line.values["scale"] == 1).all())
    is_norm = rewriter.maker_of_kind(line.inputs[0], "layernorm") is not None
    if not (is_shift or is_norm) or values["groups"] != 1 or any(values["pads"]):
        return False
    scale, shift = (line.values[name][None, :, None, None] for name in ("scale", "shift"))
    weights = values["weights"].astype(np.float64)
    values["bias"] = (values["bias"] + (weights * shift).sum((1, 2, 3))).astype(np.float32)
    values["weights"] = (weights * scale).astype(np.float32)
    operation.values = values
    rewriter.absorb(operation, line)
    return True


def _merge_branches(rewriter: OperationRewriter, operation: LayerOperation) -> bool:
    """Merge convolutions of one tensor, and batch norms of it, that are added into one convolution.

    Networks that were trained with such branches are deployed so. Sources: Ding et al., RepVGG, 2021, section 3.3; Vasu et al.,
    MobileOne, 2023.
    """
    if operation.kind != "add" or len(set(operation.inputs)) != 2:
        return False
    branches = [branch for name in operation.inputs if (branch := rewriter.maker_of_kind(name, "conv", "affine")) is not None]
    if (
        len(branches) < 2
        or branches[0].inputs != branches[1].inputs
        or any(branch.activation != "linear" or not rewriter.is_read_once(branch.output) for branch in branches)
    ):
        return False
    largest, smaller = sorted(
        branches, key=lambda branch: branch.kind == "conv" and branch.values["weights"][0, 0].size, reverse=True
    )
    values = _merge_weights(largest.values, smaller.values) if largest.kind == "conv" else None
    if values is None:
        return False
    operation.kind, operation.values = "conv", values | {"activation": operation.activation}
    operation.nodes = [*largest.nodes, *smaller.nodes, *operation.nodes]
    rewriter.set_inputs(operation, largest.inputs)
    return True


def _merge_weights(largest: dict[str, Any], smaller: dict[str, Any]) -> dict[str, Any] | None:
    """Return the convolution that gives the sum of a convolution and of another or a line.

    None where the larger window does not hold the other's. Weights and biases are float64 as long as further ones may be added.
    """
    filters, depth, *window = largest["weights"].shape
    if "scale" in smaller:
        matrix = np.zeros((filters, depth))
        channels = np.arange(filters)
        matrix[channels, channels % depth] = smaller["scale"]
        smaller = largest | {"weights": matrix[:, :, None, None], "bias": smaller["shift"], "pads": [0] * 4, "strides": [1, 1]}
    if smaller["groups"] != largest["groups"] or list(smaller["strides"]) != list(largest["strides"]):
        return None
    weights = largest["weights"].astype(np.float64)
    window_slices: list[slice] = []
    for axis, side in enumerate(window):
        size, dilation = smaller["weights"].shape[2 + axis], largest["dilations"][axis]
        start, remainder = divmod(largest["pads"][axis] - smaller["pads"][axis], dilation)
        if remainder or start < 0 or start + size > side or (size > 1 and smaller["dilations"][axis] != dilation):
            return None
        window_slices.append(slice(start, start + size))
    weights[:, :, window_slices[0], window_slices[1]] += smaller["weights"]
    bias = np.add(largest["bias"], smaller["bias"], dtype=np.float64)
    return largest | {"weights": weights, "weights_name": "", "bias": bias, "merged": True}


def _fold_order_of_channels(rewriter: OperationRewriter, operation: LayerOperation) -> bool:
    """Fold a reordering of channels into the weights before it."""
    order = operation.values.get("order") if operation.kind == "conv" else None
    maker = rewriter.maker_of_kind(operation.inputs[0], "conv") if order is not None else None
    if maker is None or maker.activation != "linear" or maker.values["groups"] != 1 or not rewriter.is_read_once(maker.output):
        return False
    values = dict(maker.values)
    values |= {"weights": values["weights"][order], "bias": values["bias"][order], "activation": operation.activation}
    values["factor"] = np.broadcast_to(values.get("factor", 1.0), len(maker.values["bias"]))[order]
    operation.values = values
    rewriter.absorb(operation, maker)
    return True


def _join_samples(rewriter: OperationRewriter, operation: LayerOperation) -> bool:
    """Join every n-th pixel of every n-th pixel into one; all of them side by side are space to depth."""
    maker = rewriter.maker_of_kind(operation.inputs[0], "sample") if operation.kind == "sample" else None
    if maker is not None:
        step, start = maker.values["step"], maker.values["start"]
        operation.values = {
            "start": tuple(a + b * c for a, b, c in zip(start, operation.values["start"], step, strict=True)),
            "step": tuple(a * b for a, b in zip(step, operation.values["step"], strict=True)),
        }
        rewriter.absorb(operation, maker)
        return True
    block = round(len(operation.inputs) ** 0.5)
    if operation.kind != "concat" or block < 2 or block * block != len(operation.inputs):
        return False
    samples = [sample for name in operation.inputs if (sample := rewriter.maker_of_kind(name, "sample")) is not None]
    if len(samples) < len(operation.inputs) or len({sample.inputs[0] for sample in samples}) > 1:
        return False
    order = [sample.values["start"] for sample in samples]
    if {sample.values["step"] for sample in samples} != {(block, block)} or sorted(order) != sorted(np.ndindex(block, block)):
        return False
    nodes = dict.fromkeys(name for sample in samples for name in sample.nodes)
    operation.kind, operation.nodes = "space_to_depth", [*nodes, *operation.nodes]
    operation.values = {"block": block, "order": order}
    rewriter.set_inputs(operation, samples[0].inputs)
    return True


def _fold_order_of_blocks(rewriter: OperationRewriter, operation: LayerOperation) -> bool:
    """Fold the order of the pixels of a block in space to depth into the weights of the convolution behind it."""
    if operation.kind != "space_to_depth" or operation.values["order"] is None or not rewriter.is_read_once(operation.output):
        return False
    block, order = operation.values["block"], operation.values["order"]
    [reader] = rewriter.readers[operation.output].values()
    if reader.kind != "conv" or reader.values["groups"] != 1:
        return False
    weights, channels = reader.values["weights"], operation.shape[0] // (block * block)
    blocks = weights.reshape(len(weights), block * block, channels, *weights.shape[2:])
    block_order = [order.index(position) for position in np.ndindex(block, block)]
    reader.values = reader.values | {"weights": blocks[:, block_order].reshape(weights.shape)}
    operation.values["order"] = None
    return True


def _absorb_padding(rewriter: OperationRewriter, operation: LayerOperation) -> bool:
    """Let zeros around an image be the convolution's own padding, and the lowest values that of a maximum pooling."""
    pad = rewriter.maker_of_kind(operation.inputs[0], "pad") if operation.kind in ("conv", "maxpool") else None
    if (
        pad is None
        or not rewriter.is_read_once(pad.output)
        or any(pad.values["channels"])
        or pad.values.get("edge")
        or bool(pad.values.get("lowest")) != (operation.kind == "maxpool")
    ):
        return False
    pads = [a + b for a, b in zip(operation.values["pads"], pad.values["pads"], strict=True)]
    operation.values = operation.values | {"pads": pads}
    rewriter.absorb(operation, pad)
    return True


def _absorb_activation(rewriter: OperationRewriter, operation: LayerOperation) -> bool:
    """Let an activation belong to the layer whose result nothing else reads."""
    maker = rewriter.maker_of_kind(operation.inputs[0], *_ACTIVATED) if operation.kind == "activation" else None
    if (
        maker is None
        or maker.activation != "linear"
        or not rewriter.is_read_once(maker.output)
        or maker.output in rewriter.rounded_tensors
    ):
        return False
    operation.kind, operation.values = maker.kind, maker.values | {"activation": operation.values["word"]}
    rewriter.absorb(operation, maker)
    return True
