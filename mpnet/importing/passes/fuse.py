# SPDX-License-Identifier: MIT
"""Operations that other programs write as several and layers do at once: activations, batch norms, padding, focus."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from mpnet.importing.layer_graph import LayerGraph, LayerOperation

_WEIGHTED = ("conv", "deconv", "dense")
_ACTIVATED = (*_WEIGHTED, "affine", "add", "mul")
_GATED = {"logistic": "swish", "hard_sigmoid": "hard_swish"}
# 6 times what float32 has for a sixth is one to this.
_ALMOST = 1e-6
_MAX_PASSES = 100


def fuse(
    layers: LayerGraph, kept: list[str], apart: frozenset[str] = frozenset(), quantised: bool = False, branches: bool = True
) -> int:
    """Make the graph as short as layers can say it; how many branches of convolutions were merged with others.

    kept:  tensors that must stay, the heads'. apart: those that are rounded before an activation, which then is a layer.
    quantised: whether weights have codes, which a factor per input channel, and weights of another branch, would change.
    branches:  whether to merge parallel convolutions.
    """
    rewriter = _Rewriter(layers, frozenset(kept), apart)
    for rule in (_same_shape, _gates, _lines, _into_weights, _channels, _samples, _order, _padding):
        rewriter.apply(rule)
    merged = 0
    if branches and not quantised:
        before = len(layers.operations)
        rewriter.apply(_branches)
        merged = before - len(layers.operations)
        # A batch norm of the sum.
        rewriter.apply(_into_weights)
    rewriter.apply(_activations)
    if not quantised:
        rewriter.apply(_into_next)
    return merged // 2  # a branch and its sum


class _Rewriter:
    """A graph with who makes and reads each tensor, kept up to date while rules change it: rules that looked at the whole graph
    after each change would take quadratic time. Operations that nothing reads any more leave it."""

    def __init__(self, layers: LayerGraph, kept: frozenset[str], apart: frozenset[str]) -> None:
        self.layers, self.kept, self.apart = layers, kept, apart
        self.makers = layers.makers()
        self.readers: dict[str, dict[int, LayerOperation]] = {}
        # With the operations themselves: a new one could be given the id of one that is gone.
        self._removed: dict[int, LayerOperation] = {}
        self._inserted: dict[int, list[LayerOperation]] = {}
        self._new: list[LayerOperation] = []
        for operation in layers.operations:
            self._read(operation)
        for operation in reversed(layers.operations):
            self._drop_unread(operation.output)
        self._compact()

    def apply(self, rule: Callable[[_Rewriter, LayerOperation], bool]) -> None:
        """Use a rule wherever it changes something."""
        for _ in range(_MAX_PASSES):
            changed = False
            for start in self.layers.operations:
                waiting = [start]
                while waiting:
                    operation = waiting.pop()
                    if id(operation) not in self._removed and rule(self, operation):
                        changed = True
                        waiting += [operation, *self._new]
                        self._new = []
            self._compact()
            if not changed:
                return

    def _compact(self) -> None:
        operations: list[LayerOperation] = []

        def place(operation: LayerOperation) -> None:
            waiting = [(operation, False)]
            while waiting:
                current, placed = waiting.pop()
                if placed:
                    if id(current) not in self._removed:
                        operations.append(current)
                    continue
                waiting.append((current, True))
                waiting += [(before, False) for before in reversed(self._inserted.get(id(current), []))]

        for operation in self.layers.operations:
            place(operation)
        self.layers.operations = operations
        self._inserted = {}

    def _read(self, operation: LayerOperation) -> None:
        for name in operation.inputs:
            self.readers.setdefault(name, {})[id(operation)] = operation

    def _drop_unread(self, tensor: str) -> None:
        waiting = [tensor]
        while waiting:
            name = waiting.pop()
            maker = self.makers.get(name)
            if maker is None or self.readers.get(name) or name in self.kept:
                continue
            self._removed[id(maker)] = maker
            del self.makers[name]
            for other in dict.fromkeys(maker.inputs):
                self.readers[other].pop(id(maker), None)
                waiting.append(other)

    def set_inputs(self, operation: LayerOperation, inputs: list[str]) -> None:
        """Let an operation read other tensors."""
        before, operation.inputs = operation.inputs, inputs
        self._read(operation)
        for name in dict.fromkeys(before):
            if name not in inputs:
                self.readers[name].pop(id(operation), None)
                self._drop_unread(name)

    def replace(self, old: str, new: str) -> None:
        """Let readers of one tensor read another."""
        for operation in list(self.readers.get(old, {}).values()):
            self.set_inputs(operation, [new if name == old else name for name in operation.inputs])

    def insert(self, operation: LayerOperation, reader: LayerOperation) -> None:
        """Put a new operation before the one that is going to read it."""
        self._inserted.setdefault(id(reader), []).append(operation)
        self._new.append(operation)
        self.layers.shapes[operation.output] = operation.shape
        self.makers[operation.output] = operation
        self._read(operation)

    def absorb(self, operation: LayerOperation, before: LayerOperation) -> None:
        """Let an operation take the place of the one before it as well."""
        operation.nodes = [*before.nodes, *operation.nodes]
        self.set_inputs(operation, before.inputs)

    def only(self, name: str) -> bool:
        """Whether one operation reads a tensor, and nothing else does."""
        return len(self.readers.get(name, ())) == 1 and name not in self.kept

    def made(self, name: str, *kinds: str) -> LayerOperation | None:
        """The operation that makes a tensor, if it is of these kinds."""
        operation = self.makers.get(name)
        return operation if operation is not None and operation.kind in kinds else None


def _same_shape(to: _Rewriter, operation: LayerOperation) -> bool:
    """What flattens one pixel changes nothing."""
    x = operation.inputs[0]
    if operation.kind != "flatten" or operation.shape != to.layers.shapes[x] or operation.output in to.kept:
        return False
    to.replace(operation.output, x)
    return True


def _uniform(line: LayerOperation | None, scale: float | None = None, shift: float | None = None) -> bool:
    """Whether this is a line, the same for all channels, and this one."""
    if line is None or line.kind != "affine" or line.activation != "linear":
        return False
    a, b = line.values["scale"], line.values["shift"]
    if not ((a == a[0]).all() and (b == b[0]).all()):
        return False
    return (scale is None or abs(a[0] - scale) < _ALMOST * abs(scale)) and (shift is None or abs(b[0] - shift) < _ALMOST)


def _gates(to: _Rewriter, operation: LayerOperation) -> bool:
    """x * logistic(x) and its like; relu6(x + 3) is six times a hard sigmoid."""
    if operation.kind == "activation" and operation.values["word"] == "relu6":
        line = to.makers.get(operation.inputs[0])
        if line is not None and _uniform(line, 1.0, 3.0):
            inside = f"{operation.output}/hard_sigmoid"
            nodes, values = [*line.nodes, *operation.nodes], {"word": "hard_sigmoid"}
            to.insert(LayerOperation("activation", nodes, line.inputs, inside, operation.shape, values), operation)
            _become_line(to, operation, inside, 6.0)
            return True
    if operation.kind != "mul":
        return False
    for a, b in (operation.inputs, operation.inputs[::-1]):
        line = to.makers.get(b)
        if line is not None and _uniform(line, shift=0.0) and operation.activation == "linear":
            # A factor of one of the two is a factor of the product.
            inside, factor = f"{operation.output}/product", float(line.values["scale"][0])
            inputs = [line.inputs[0] if name == b else name for name in operation.inputs]
            product = LayerOperation("mul", [*operation.nodes], inputs, inside, operation.shape, dict(operation.values))
            to.insert(product, operation)
            operation.nodes = [*line.nodes, *operation.nodes]
            _become_line(to, operation, inside, factor)
            return True
        gate, word = to.made(b, "activation"), None
        if gate is None or operation.values["operand"] != "same":
            continue
        nodes = gate.nodes
        if gate.inputs[0] == a:
            word = _GATED.get(gate.values["word"])
        elif gate.values["word"] == "tanh":
            soft = to.made(gate.inputs[0], "activation")
            if soft is not None and soft.values["word"] == "softplus" and soft.inputs[0] == a:
                word, nodes = "mish", [*soft.nodes, *gate.nodes]
        if word is not None:
            operation.kind, operation.nodes, operation.values = "activation", [*nodes, *operation.nodes], {"word": word}
            to.set_inputs(operation, [a])
            return True
    return False


def _become_line(to: _Rewriter, operation: LayerOperation, x: str, factor: float) -> None:
    channels = operation.shape[0]
    operation.kind = "affine"
    operation.values = {"scale": np.full(channels, factor), "shift": np.zeros(channels)}
    to.set_inputs(operation, [x])


def _lines(to: _Rewriter, operation: LayerOperation) -> bool:
    """Lines of lines are lines; those that change nothing go."""
    if operation.kind != "affine":
        return False
    if _uniform(operation, 1.0, 0.0) and operation.output not in to.kept:
        before = to.makers.get(operation.inputs[0])
        if before is not None:
            before.nodes = [*before.nodes, *operation.nodes]
        to.replace(operation.output, operation.inputs[0])
        return True
    earlier = to.made(operation.inputs[0], "affine")
    if earlier is None or earlier.activation != "linear" or not to.only(earlier.output):
        return False
    scale, shift = operation.values["scale"], operation.values["shift"]
    operation.values |= {"scale": earlier.values["scale"] * scale, "shift": earlier.values["shift"] * scale + shift}
    to.absorb(operation, earlier)
    return True


def _into_weights(to: _Rewriter, operation: LayerOperation) -> bool:
    """A line behind weights, such as a batch norm, is folded into them."""
    before = to.made(operation.inputs[0], *_WEIGHTED) if operation.kind == "affine" else None
    if before is None or before.activation != "linear" or not to.only(before.output):
        return False
    scale, values = operation.values["scale"], dict(before.values)
    axis = 1 if before.kind == "deconv" else 0
    sides = [-1 if at == axis else 1 for at in range(values["weights"].ndim)]
    values["weights"] = (values["weights"].astype(np.float64) * scale.reshape(sides)).astype(np.float32)
    values["bias"] = (values["bias"].astype(np.float64) * scale + operation.values["shift"]).astype(np.float32)
    values |= {"activation": operation.activation, "factor": values.get("factor", 1.0) * scale}
    operation.kind, operation.values = before.kind, values
    to.absorb(operation, before)
    return True


def _into_next(to: _Rewriter, operation: LayerOperation) -> bool:
    """A line between a layer norm and a convolution without padding is folded into the convolution."""
    before = to.made(operation.inputs[0], "affine") if operation.kind == "conv" else None
    if before is None or before.activation != "linear" or not to.only(before.output):
        return False
    values = dict(operation.values)
    if to.made(before.inputs[0], "layernorm") is None or values["groups"] != 1 or any(values["pads"]):
        return False
    scale, shift = (before.values[name][None, :, None, None] for name in ("scale", "shift"))
    weights = values["weights"].astype(np.float64)
    values["bias"] = (values["bias"] + (weights * shift).sum((1, 2, 3))).astype(np.float32)
    values["weights"] = (weights * scale).astype(np.float32)
    operation.values = values
    to.absorb(operation, before)
    return True


def _branches(to: _Rewriter, operation: LayerOperation) -> bool:
    """Convolutions of one tensor, and batch norms of it, that are added are one convolution, as networks that were trained with
    such branches are deployed. Sources: Ding et al., RepVGG, 2021, section 3.3; Vasu et al., MobileOne, 2023."""
    if operation.kind != "add" or len(set(operation.inputs)) != 2:
        return False
    parts = [part for name in operation.inputs if (part := to.made(name, "conv", "affine")) is not None]
    if (
        len(parts) < 2
        or parts[0].inputs != parts[1].inputs
        or any(part.activation != "linear" or not to.only(part.output) for part in parts)
    ):
        return False
    one, other = sorted(parts, key=lambda part: part.kind == "conv" and part.values["weights"][0, 0].size, reverse=True)
    values = _merged(one.values, other.values) if one.kind == "conv" else None
    if values is None:
        return False
    operation.kind, operation.values = "conv", values | {"activation": operation.activation}
    operation.nodes = [*one.nodes, *other.nodes, *operation.nodes]
    to.set_inputs(operation, one.inputs)
    return True


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any] | None:
    """The convolution that gives the sum of a convolution and of another or a line; None where its window does not hold the
    other's. Weights and biases are float64 as long as further ones may be added."""
    filters, depth, *window = one["weights"].shape
    if "scale" in other:
        own = np.zeros((filters, depth))
        channels = np.arange(filters)
        own[channels, channels % depth] = other["scale"]
        other = one | {"weights": own[:, :, None, None], "bias": other["shift"], "pads": [0] * 4, "strides": [1, 1]}
    if other["groups"] != one["groups"] or list(other["strides"]) != list(one["strides"]):
        return None
    weights = one["weights"].astype(np.float64)
    places: list[slice] = []
    for axis, side in enumerate(window):
        size, dilation = other["weights"].shape[2 + axis], one["dilations"][axis]
        first, rest = divmod(one["pads"][axis] - other["pads"][axis], dilation)
        if rest or first < 0 or first + size > side or (size > 1 and other["dilations"][axis] != dilation):
            return None
        places.append(slice(first, first + size))
    weights[:, :, places[0], places[1]] += other["weights"]
    bias = np.add(one["bias"], other["bias"], dtype=np.float64)
    return one | {"weights": weights, "weights_name": "", "bias": bias, "merged": True}


def _channels(to: _Rewriter, operation: LayerOperation) -> bool:
    """The order of channels is that of the weights before them."""
    order = operation.values.get("order") if operation.kind == "conv" else None
    before = to.made(operation.inputs[0], "conv") if order is not None else None
    if before is None or before.activation != "linear" or before.values["groups"] != 1 or not to.only(before.output):
        return False
    values = dict(before.values)
    values |= {"weights": values["weights"][order], "bias": values["bias"][order], "activation": operation.activation}
    values["factor"] = np.broadcast_to(values.get("factor", 1.0), len(before.values["bias"]))[order]
    operation.values = values
    to.absorb(operation, before)
    return True


def _samples(to: _Rewriter, operation: LayerOperation) -> bool:
    """Every n-th pixel of every n-th pixel; all of them side by side are space to depth."""
    before = to.made(operation.inputs[0], "sample") if operation.kind == "sample" else None
    if before is not None:
        step, start = before.values["step"], before.values["start"]
        operation.values = {
            "start": tuple(a + b * c for a, b, c in zip(start, operation.values["start"], step, strict=True)),
            "step": tuple(a * b for a, b in zip(step, operation.values["step"], strict=True)),
        }
        to.absorb(operation, before)
        return True
    block = round(len(operation.inputs) ** 0.5)
    if operation.kind != "concat" or block < 2 or block * block != len(operation.inputs):
        return False
    parts = [part for name in operation.inputs if (part := to.made(name, "sample")) is not None]
    if len(parts) < len(operation.inputs) or len({part.inputs[0] for part in parts}) > 1:
        return False
    order = [part.values["start"] for part in parts]
    if {part.values["step"] for part in parts} != {(block, block)} or sorted(order) != sorted(np.ndindex(block, block)):
        return False
    nodes = dict.fromkeys(name for part in parts for name in part.nodes)
    operation.kind, operation.nodes = "space_to_depth", [*nodes, *operation.nodes]
    operation.values = {"block": block, "order": order}
    to.set_inputs(operation, parts[0].inputs)
    return True


def _order(to: _Rewriter, operation: LayerOperation) -> bool:
    """Which part of space to depth comes first is a matter of the convolution's weights."""
    if operation.kind != "space_to_depth" or operation.values["order"] is None or not to.only(operation.output):
        return False
    block, order = operation.values["block"], operation.values["order"]
    [reader] = to.readers[operation.output].values()
    if reader.kind != "conv" or reader.values["groups"] != 1:
        return False
    weights, channels = reader.values["weights"], operation.shape[0] // (block * block)
    parts = weights.reshape(len(weights), block * block, channels, *weights.shape[2:])
    places = [order.index(place) for place in np.ndindex(block, block)]
    reader.values = reader.values | {"weights": parts[:, places].reshape(weights.shape)}
    operation.values["order"] = None
    return True


def _padding(to: _Rewriter, operation: LayerOperation) -> bool:
    """Zeros around an image are a convolution's own, the lowest values a largest one's."""
    before = to.made(operation.inputs[0], "pad") if operation.kind in ("conv", "maxpool") else None
    if (
        before is None
        or not to.only(before.output)
        or any(before.values["channels"])
        or before.values.get("edge")
        or bool(before.values.get("lowest")) != (operation.kind == "maxpool")
    ):
        return False
    pads = [a + b for a, b in zip(operation.values["pads"], before.values["pads"], strict=True)]
    operation.values = operation.values | {"pads": pads}
    to.absorb(operation, before)
    return True


def _activations(to: _Rewriter, operation: LayerOperation) -> bool:
    """An activation belongs to the layer whose result nothing else reads."""
    before = to.made(operation.inputs[0], *_ACTIVATED) if operation.kind == "activation" else None
    if before is None or before.activation != "linear" or not to.only(before.output) or before.output in to.apart:
        return False
    operation.kind, operation.values = before.kind, before.values | {"activation": operation.values["word"]}
    to.absorb(operation, before)
    return True
