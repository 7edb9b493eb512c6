# SPDX-License-Identifier: MIT
"""Items that other programs write as several and layers do at once: activations, batch norms, padding, focus."""

from __future__ import annotations

import numpy as np

from mpnet.importing.items import Body, Item

_WEIGHTED = ("conv", "deconv", "dense")
_ACTIVATED = (*_WEIGHTED, "affine", "add", "mul")
_GATED = {"logistic": "swish", "hard_sigmoid": "hard_swish"}
# 6 times what float32 has for a sixth is one to this.
_ALMOST = 1e-6


def fuse(body: Body, kept: list[str], apart: frozenset[str] = frozenset()) -> None:
    """Make the body as short as layers can say it.

    kept:  tensors that must stay, the heads'. apart: those that are rounded before an activation, which then is a layer.
    """
    _drop_dead(body, kept)
    for rule in (_same_shape, _gates, _lines, _lines, _into_weights, _samples, _order, _padding, _activations):
        while rule(_State(body, kept, apart)):
            _drop_dead(body, kept)
    _drop_dead(body, kept)


class _State:
    """A body with who makes and reads each tensor."""

    def __init__(self, body: Body, kept: list[str], apart: frozenset[str]) -> None:
        self.body, self.kept, self.apart = body, kept, apart
        self.makers, self.readers = body.makers(), body.readers()

    def only(self, name: str) -> bool:
        """Whether one item reads a tensor, and nothing else does."""
        return len(self.readers.get(name, ())) == 1 and name not in self.kept

    def replace(self, old: str, new: str) -> None:
        """Let readers of one tensor read another; a tensor that must stay keeps its name."""
        for item in self.body.items:
            item.inputs = [new if name == old else name for name in item.inputs]

    def made(self, name: str, *kinds: str) -> Item | None:
        """The item that makes a tensor, if it is of these kinds."""
        item = self.makers.get(name)
        return item if item is not None and item.kind in kinds else None


def _drop_dead(body: Body, kept: list[str]) -> None:
    needed, left = set(kept), []
    for item in reversed(body.items):
        if item.output in needed:
            needed.update(item.inputs)
            left.append(item)
    body.items = left[::-1]


def _same_shape(state: _State) -> bool:
    """What flattens one pixel changes nothing."""
    for item in state.body.items:
        if item.kind == "flatten" and item.shape == state.body.shapes[item.inputs[0]] and item.output not in state.kept:
            state.body.items.remove(item)
            state.replace(item.output, item.inputs[0])
            return True
    return False


def _uniform(item: Item, scale: float | None = None, shift: float | None = None) -> bool:
    """Whether a line is the same for all channels, and this one."""
    a, b = item.values["scale"], item.values["shift"]
    if item.activation != "linear" or not ((a == a[0]).all() and (b == b[0]).all()):
        return False
    return (scale is None or abs(a[0] - scale) < _ALMOST * abs(scale)) and (shift is None or abs(b[0] - shift) < _ALMOST)


def _gates(state: _State) -> bool:
    """x * logistic(x) and its like; relu6(x + 3) is six times a hard sigmoid."""
    for item in state.body.items:
        if item.kind == "activation" and item.values["word"] == "relu6":
            line = state.made(item.inputs[0], "affine")
            if line is not None and _uniform(line, 1.0, 3.0):
                inside = f"{item.output}/hard_sigmoid"
                made = Item("activation", [*line.nodes, *item.nodes], line.inputs, inside, item.shape, {"word": "hard_sigmoid"})
                at = state.body.items.index(item)
                state.body.items.insert(at, made)
                state.body.shapes[inside] = item.shape
                _become_line(item, inside, 6.0)
                return True
        if item.kind != "mul":
            continue
        for a, b in (item.inputs, item.inputs[::-1]):
            line = state.made(b, "affine")
            if line is not None and _uniform(line, shift=0.0) and item.activation == "linear":
                # A factor of one of the two is a factor of the product.
                inside = f"{item.output}/product"
                factor = float(line.values["scale"][0])
                inputs = [line.inputs[0] if name == b else name for name in item.inputs]
                product = Item("mul", [*item.nodes], inputs, inside, item.shape, dict(item.values))
                state.body.items.insert(state.body.items.index(item), product)
                state.body.shapes[inside] = item.shape
                item.nodes = [*line.nodes, *item.nodes]
                _become_line(item, inside, factor)
                return True
            gate = state.made(b, "activation")
            word: str | None = None
            if gate is not None and gate.inputs[0] == a and item.values["operand"] == "same":
                word = _GATED.get(gate.values["word"])
            if gate is not None and gate.values["word"] == "tanh" and item.values["operand"] == "same":
                soft = state.made(gate.inputs[0], "activation")
                if soft is not None and soft.values["word"] == "softplus" and soft.inputs[0] == a:
                    word = "mish"
                    gate.nodes = [*soft.nodes, *gate.nodes]
            if word is not None and gate is not None:
                item.kind, item.inputs, item.nodes, item.values = "activation", [a], [*gate.nodes, *item.nodes], {"word": word}
                return True
    return False


def _become_line(item: Item, x: str, factor: float) -> None:
    channels = item.shape[0]
    item.kind, item.inputs = "affine", [x]
    item.values = {"scale": np.full(channels, factor), "shift": np.zeros(channels)}


def _lines(state: _State) -> bool:
    """Lines of lines are lines; those that change nothing go."""
    for item in state.body.items:
        if item.kind != "affine":
            continue
        if _uniform(item, 1.0, 0.0) and item.output not in state.kept:
            state.body.items.remove(item)
            state.replace(item.output, item.inputs[0])
            before = state.makers.get(item.inputs[0])
            if before is not None:
                before.nodes = [*before.nodes, *item.nodes]
            return True
        earlier = state.made(item.inputs[0], "affine")
        if earlier is not None and earlier.activation == "linear" and state.only(earlier.output):
            scale, shift = item.values["scale"], item.values["shift"]
            item.values |= {"scale": earlier.values["scale"] * scale, "shift": earlier.values["shift"] * scale + shift}
            _absorb(state, item, earlier)
            return True
    return False


def _absorb(state: _State, item: Item, before: Item) -> None:
    """Let an item take the place of the one before it as well."""
    item.inputs, item.nodes = before.inputs, [*before.nodes, *item.nodes]
    state.body.items.remove(before)


def _into_weights(state: _State) -> bool:
    """A line behind weights, such as a batch norm, is folded into them."""
    for item in state.body.items:
        before = state.made(item.inputs[0], *_WEIGHTED) if item.kind == "affine" else None
        if before is None or before.activation != "linear" or not state.only(before.output):
            continue
        scale, values = item.values["scale"], dict(before.values)
        axis = 1 if before.kind == "deconv" else 0
        sides = [-1 if at == axis else 1 for at in range(values["weights"].ndim)]
        values["weights"] = (values["weights"].astype(np.float64) * scale.reshape(sides)).astype(np.float32)
        values["bias"] = (values["bias"].astype(np.float64) * scale + item.values["shift"]).astype(np.float32)
        values |= {"activation": item.activation, "factor": values.get("factor", 1.0) * scale}
        item.kind, item.values = before.kind, values
        _absorb(state, item, before)
        return True
    return False


def _samples(state: _State) -> bool:
    """Every n-th pixel of every n-th pixel; all of them side by side are space to depth."""
    for item in state.body.items:
        before = state.made(item.inputs[0], "sample") if item.kind == "sample" else None
        if before is not None:
            step, start = before.values["step"], before.values["start"]
            item.values = {
                "start": tuple(a + b * c for a, b, c in zip(start, item.values["start"], step, strict=True)),
                "step": tuple(a * b for a, b in zip(step, item.values["step"], strict=True)),
            }
            item.inputs, item.nodes = before.inputs, [*before.nodes, *item.nodes]
            return True
        if item.kind != "concat":
            continue
        parts = [state.made(name, "sample") for name in item.inputs]
        found = [part for part in parts if part is not None]
        block = round(len(parts) ** 0.5)
        if len(found) < len(parts) or block < 2 or block * block != len(parts) or len({part.inputs[0] for part in found}) > 1:
            continue
        order = [part.values["start"] for part in found]
        if {part.values["step"] for part in found} == {(block, block)} and sorted(order) == sorted(
            (y, x) for y in range(block) for x in range(block)
        ):
            nodes = [name for part in found for name in part.nodes]
            item.kind, item.inputs, item.nodes = "space_to_depth", found[0].inputs, [*dict.fromkeys(nodes), *item.nodes]
            item.values = {"block": block, "order": order}
            return True
    return False


def _order(state: _State) -> bool:
    """Which part of space to depth comes first is a matter of the convolution's weights."""
    for item in state.body.items:
        if item.kind != "space_to_depth" or item.values["order"] is None:
            continue
        block, order = item.values["block"], item.values["order"]
        reader = state.readers[item.output][0]
        if not state.only(item.output) or reader.kind != "conv" or reader.values["groups"] != 1:
            continue
        weights, channels = reader.values["weights"], item.shape[0] // (block * block)
        parts = weights.reshape(len(weights), block * block, channels, *weights.shape[2:])
        places = [order.index((y, x)) for y in range(block) for x in range(block)]
        reader.values = reader.values | {"weights": parts[:, places].reshape(weights.shape)}
        item.values["order"] = None
        return True
    return False


def _padding(state: _State) -> bool:
    """Zeros around an image are a convolution's own, the lowest values a largest one's."""
    for item in state.body.items:
        before = state.made(item.inputs[0], "pad") if item.kind in ("conv", "maxpool") else None
        if (
            before is not None
            and state.only(before.output)
            and not any(before.values["channels"])
            and (not before.values.get("edge") and bool(before.values.get("lowest")) == (item.kind == "maxpool"))
        ):
            pads = [a + b for a, b in zip(item.values["pads"], before.values["pads"], strict=True)]
            item.values = item.values | {"pads": pads}
            _absorb(state, item, before)
            return True
    return False


def _activations(state: _State) -> bool:
    """An activation belongs to the layer whose result nothing else reads."""
    for item in state.body.items:
        before = state.made(item.inputs[0], *_ACTIVATED) if item.kind == "activation" else None
        if (
            before is not None
            and before.activation == "linear"
            and state.only(before.output)
            and (before.output not in state.apart)
        ):
            item.kind, item.values = before.kind, before.values | {"activation": item.values["word"]}
            _absorb(state, item, before)
            return True
    return False
