# SPDX-License-Identifier: MIT
"""The record of one operator of ONNX, in one place: its result's shape, its values, and what it is as a layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from mpnet.importing.graph import MAX_OPERANDS, Array, Node, NodeGraph, Refused
from mpnet.importing.layer_graph import Chw, LayerGraph, LayerOperation
from mpnet.messages import shown

Shape = tuple[int, ...]
_MAX_NUMBER = 1 << 31
# Longer lists of numbers, such as axes or parts, do not occur; reading them for every node would take long.
_MAX_NUMBERS = 1 << 10
_MAX_RESULT_VALUES = 1 << 30
_MAX_CHANNELS = 1 << 20
_MAX_PARAMETERS = 1 << 25
_MAX_OPERATIONS = 100_000
MAX_RANK = 32
"""Axes of a tensor; NumPy joins the shapes of no more."""
DOES_NOT_FIT = (ValueError, IndexError, TypeError, OverflowError, ZeroDivisionError, MemoryError)
"""What NumPy raises where shapes and values of a file do not fit together: it looks at them better than we would."""
ANY_COUNT = (1, MAX_OPERANDS)
"""Inputs of an operator that takes any number of them."""
NO_FIXED_SHAPE = "the shape of its result is not fixed; export the model with static shapes"


class OperatorCall:
    """A node together with the values and shapes of its inputs, as far as they are known.

    arrays: the values of each input, None where it is left out or no constant.
    shapes: the shape of each input, None where it is not known.
    Raises: Refused, by every method, where the file holds something else than what is asked for.
    """

    def __init__(self, node: Node, arrays: Sequence[Array | None], shapes: Sequence[Shape | None] | None = None) -> None:
        self.node, self.arrays = node, arrays
        self.shapes = [None if x is None else x.shape for x in arrays] if shapes is None else shapes

    @classmethod
    def in_graph(cls, graph: NodeGraph, node: Node) -> OperatorCall:
        """Return the call of a node of a graph, with the constants and shapes that the graph has."""
        arrays = [graph.constants.get(name) if name else None for name in node.inputs]
        shapes = [
            graph.shapes.get(name) if array is None else array.shape for name, array in zip(node.inputs, arrays, strict=True)
        ]
        return cls(node, arrays, shapes)

    def has_input(self, index: int) -> bool:
        """Return whether an input is not left out."""
        is_named = index < len(self.node.inputs) and self.node.inputs[index] != ""
        return index < len(self.arrays) and (self.arrays[index] is not None or is_named)

    def constant(self, index: int) -> Array | None:
        """Return the values of an input that must be a constant, None where it is left out."""
        if not self.has_input(index):
            return None
        array = self.arrays[index]
        if array is None:
            raise Refused(f"its input {index} is computed when the model runs; only constants are possible there")
        return array

    def array(self, index: int) -> Array:
        """Return the values of an input that must be a constant and must not be left out."""
        array = self.constant(index)
        if array is None:
            raise Refused(f"its input {index} is missing; the file is damaged")
        return array

    def shape(self, index: int = 0) -> Shape:
        """Return the shape of an input that must not be left out."""
        shape = self.shapes[index] if index < len(self.shapes) else None
        if shape is None:
            raise Refused("the shape of its input is not fixed; export the model with static shapes")
        return shape

    def axis(self, default: int | None, rank: int | None = None) -> int:
        """Return the attribute `axis`, counted from the first axis of an input of that rank (None: the first input's)."""
        rank, axis = len(self.shape()) if rank is None else rank, self.integer("axis", default)
        if not -rank <= axis < rank:
            raise Refused(f"axis {axis} of a tensor of {rank} axes; the file is damaged")
        return axis % rank

    def axes(self, index: int = 1, rank: int | None = None) -> list[int] | None:
        """Return axes from an input (newer files) or an attribute (older ones), counted from the first; None: all."""
        rank, axes = len(self.shape()) if rank is None else rank, self.integers("axes", index)
        if axes is None:
            return None
        counted_axes = [axis % rank for axis in axes if -rank <= axis < rank]
        if len(set(counted_axes)) < len(axes):
            raise Refused(f"axes {axes[:8]} of a tensor of {rank} axes; the file is damaged")
        return counted_axes

    def integers(
        self, name: str, index: int | None = None, required_count: int | None = None, max_count: int = _MAX_NUMBERS
    ) -> list[int] | None:
        """Return integers from an attribute, or from an input where one is given; None where the file has neither.

        required_count: how many there must be. max_count: how many there may be.
        """
        values = self.constant(index) if index is not None and self.has_input(index) else self.node.attributes.get(name)
        if values is None or (isinstance(values, list) and not values and required_count):
            return None
        size = values.size if isinstance(values, np.ndarray) else len(values) if isinstance(values, list) else -1
        if not 0 <= size <= max_count or (required_count is not None and size != required_count):
            raise Refused(
                f"{name} is no list of {'whole numbers' if required_count is None else f'{required_count} whole numbers'}"
            )
        numbers = values.ravel().tolist() if isinstance(values, np.ndarray) else values
        return [_as_integer(name, number) for number in numbers]

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an integer from an attribute; it must be there where there is no default."""
        value = self.node.attributes.get(name, default)
        if value is None:
            raise Refused(f"{name} is missing; the file is damaged")
        return _as_integer(name, value)

    def number(self, name: str, default: float, index: int | None = None) -> float:
        """Return a number from an attribute, or from an input where one is given."""
        from_input = index is not None and name not in self.node.attributes
        value: object = self.constant(index) if index is not None and from_input else None
        value = self.node.attributes.get(name, default) if value is None else value
        if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "fiub":
            value = float(value.ravel()[0])
        if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
            raise Refused(f"{name} is no number; the file is damaged")
        return float(value)

    def text(self, name: str, default: str, allowed: Sequence[str] = ()) -> str:
        """Return a word from an attribute, one of those allowed; (): any."""
        value = self.node.attributes.get(name, default)
        if not isinstance(value, str) or (allowed and value not in allowed):
            raise Refused(f"{name} {str(value)[:40]!r} is not known; known are {', '.join(allowed)}")
        return value


def _as_integer(name: str, value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        raise Refused(f"{name} holds {shown(str(value)[:20])}, which is no whole number; the file is damaged")
    # "To the end" is written as the largest number that a type has.
    return max(-_MAX_NUMBER, min(_MAX_NUMBER, value))


@dataclass(frozen=True)
class Operator:
    """The record of one operator.

    shape:    the shape of the result, or a list with one of each result. None: the operator only moves values, so that
              `evaluate` tells the shape of an array without values of its own.
    evaluate: the result, or a list of them, of inputs that are all known. None: it is not computed.
    lift:     appends the layers' operations that the node becomes. None: it has no form in a cfg.
    work:     the time that one value takes, in additions. multiplies: multiplications and additions besides, of MatMul.
    positive: its result is never negative. keeps_sign: its result is never negative where no input is.
    inputs:   how many there must be, and may be. Those that must be there cannot be left out, nor any of `ANY_COUNT`.
    """

    shape: Callable[[OperatorCall], Shape | list[Shape]] | None = None
    evaluate: Callable[[OperatorCall], Array | list[Array]] | None = None
    lift: Callable[[Lifter, OperatorCall], object] | None = None
    work: int = 1
    multiplies: Callable[[OperatorCall], int] | None = None
    positive: bool = False
    keeps_sign: bool = False
    inputs: tuple[int, int] = (1, 1)

    def check_inputs(self, node: Node) -> None:
        """Check that no input of a node is missing and that they are not too many. Raises: Refused."""
        min_inputs, max_inputs = self.inputs
        if self.inputs == ANY_COUNT:
            min_inputs = max(min_inputs, len(node.inputs))
        missing_index = next((index for index in range(min_inputs) if not any(node.inputs[index : index + 1])), None)
        if missing_index is not None:
            raise Refused(f"its input {missing_index} is missing; the file is damaged")
        if len(node.inputs) > max_inputs:
            raise Refused(
                f"has {len(node.inputs)} inputs, not {'' if min_inputs == max_inputs else 'at most '}{max_inputs}; "
                "the file is damaged"
            )


class Lifter:
    """The layers' operations so far (`layers`), while the nodes of `graph` are turned into them."""

    def __init__(self, graph: NodeGraph) -> None:
        self.graph = graph
        _, channels, height, width = graph.shapes[graph.image]
        self.layers = LayerGraph([], {graph.image: (channels, height, width)}, {})
        # One constant may be the weights of many nodes, each of which becomes a layer with weights of its own.
        self._parameters_left = _MAX_PARAMETERS + 4 * sum(array.size for array in graph.constants.values())

    def chw(self, call: OperatorCall, index: int = 0) -> Chw:
        """Return (channels, height, width) of an input. Raises: Refused where it is no tensor of a layer."""
        name = call.node.inputs[index] if index < len(call.node.inputs) else ""
        if name not in self.layers.shapes:
            raise Refused(f"its input {index} is no tensor of a layer")
        if self.count_column(self.graph.shapes.get(name, ())) and call.node.operator not in ("Reshape", "Softmax"):
            raise Refused(f"its input {index} has the shape {list(self.graph.shapes[name])[:8]}")
        return self.layers.shapes[name]

    @staticmethod
    def count_column(shape: Shape) -> int:
        """Count the values of a tensor that is one pixel with other axes than a layer's; 0 for any other tensor."""
        values = math.prod(shape)
        return values if len(shape) > 4 and values == max(shape) else 0

    def result(self, call: OperatorCall, index: int = 0) -> Chw:
        """Return (channels, height, width) of a result, as the file's rules give it. Raises: Refused."""
        shape = self.graph.shapes.get(call.node.outputs[index])
        if shape is None:
            raise Refused(NO_FIXED_SHAPE)
        if 0 in shape:
            raise Refused(f"its result of the shape {list(shape)[:8]} has no values")
        if math.prod(shape) > _MAX_RESULT_VALUES or (len(shape) > 1 and shape[1] > _MAX_CHANNELS):
            raise Refused(f"its result of the shape {list(shape)[:8]} is larger than mpnet holds")
        if len(shape) == 2 and shape[0] == 1:
            return (shape[1], 1, 1)
        if self.count_column(shape) and call.node.operator in ("Reshape", "Softmax"):
            return (self.count_column(shape), 1, 1)
        if len(shape) != 4 or shape[0] != 1:
            raise Refused(f"its result has the shape {list(shape)}; layers give (1, channels, height, width)")
        return shape[1:]

    def add(self, call: OperatorCall, kind: str, inputs: Sequence[str], shape: Chw, output: str = "", **values: object) -> str:
        """Append an operation and return the name of its result."""
        self._parameters_left -= sum(value.size for value in values.values() if isinstance(value, np.ndarray))
        if self._parameters_left < 0:
            self.graph.refuse(call.node, "makes the weights larger than mpnet holds; export a smaller model")
        if len(self.layers.operations) == _MAX_OPERATIONS:
            self.graph.refuse(call.node, f"is behind {_MAX_OPERATIONS} others; no cfg has so many layers")
        if kind in ("conv", "deconv", "dense"):
            values["node"] = call.node.name
        name = output or call.node.output
        self.layers.operations.append(LayerOperation(kind, [call.node.name], list(inputs), name, shape, values))
        self.layers.shapes[name] = shape
        return name

    def apply(self, call: OperatorCall, kind: str, output: str = "", **values: object) -> str:
        """Append an operation on the first input whose result is the node's, and return the name of that result."""
        self.chw(call)
        return self.add(call, kind, call.node.inputs[:1], self.result(call), output, **values)

    def add_filter(self, call: OperatorCall, x: str, shape: Chw, weights: Array, groups: int = 1, **values: Any) -> str:
        """Append a convolution by weights that the file does not have, without padding and bias."""
        values |= {"weights": weights, "weights_name": "", "bias": np.zeros(len(weights), np.float32), "groups": groups}
        return self.add(call, "conv", [x], shape, strides=[1, 1], dilations=[1, 1], pads=[0] * 4, **values)

    def add_line(self, call: OperatorCall, x: str, shape: Chw, output: str, scale: ArrayLike, shift: ArrayLike) -> str:
        """Append scale * x + shift, with numbers or arrays of one value per channel."""
        arrays = (np.asarray(values, np.float64) for values in (scale, shift))
        a, b = (np.broadcast_to(values, shape[0]).copy() for values in arrays)
        return self.add(call, "affine", [x], shape, output, scale=a, shift=b)


class Budget:
    """Work and memory that evaluating nodes may take in all, so that a small file cannot ask for much.

    values: values that are read and made, weighted by the time they take. held_bytes: arrays that stay.
    """

    MAX_VALUES = 1 << 24

    def __init__(self, values: int, held_bytes: int) -> None:
        self.values, self.held_bytes = values, held_bytes

    def spend(self, operator: Operator, call: OperatorCall, shapes: Sequence[Shape]) -> None:
        """Count a node before it is computed. Raises: Refused."""
        sizes = [array.size for array in call.arrays if array is not None]
        result_values = sum(math.prod(shape) for shape in shapes)
        if result_values > max(self.MAX_VALUES, sum(sizes)):
            raise Refused(f"a result of shape {list(shapes[0])[:8]} is larger than mpnet computes")
        self.values -= (result_values + sum(sizes)) * operator.work + (operator.multiplies(call) if operator.multiplies else 0)
        # A call of NumPy costs some microseconds even without values.
        self.values -= 1 << 10
        if self.values < 0:
            raise Refused("takes more arithmetic than mpnet does while it imports; export a simplified model")

    def hold(self, call: OperatorCall, results: Sequence[Array]) -> None:
        """Count results that stay in memory, but for views of inputs. Raises: Refused."""
        for result in results:
            if not any(array is not None and np.may_share_memory(result, array) for array in call.arrays):
                self.held_bytes -= result.nbytes
        if self.held_bytes < 0:
            raise Refused("makes the constants larger than mpnet holds; export a smaller model")
