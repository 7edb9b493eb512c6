# SPDX-License-Identifier: MIT
"""The graph of a TensorFlow Lite file while its operators are appended in ONNX's words.

Tensors and operators of the file, and how names, shapes and constants are found by number. Tensors of four axes become channels
first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from mpnet.importing.graph import MAX_OPERANDS, Array, Node, NodeGraph, QuantizationParameters, Refused
from mpnet.messages import shown

CHANNELS_FIRST, CHANNELS_LAST = [0, 3, 1, 2], [0, 2, 3, 1]
"""The order of axes that turns channels last into channels first, and the reverse."""
# Of ActivationFunctionType.
_FUSED = {0: "", 1: "Relu", 2: "hardtan", 3: "Clip", 4: "Tanh"}


@dataclass
class TfliteTensor:
    """A tensor of the file.

    name, shape:   as in the file, the name made unique.
    values:        the stored values of a constant, else None.
    quantization:  how its integers mean reals, None where the file does not say.
    unsupported:   whether its numbers are no precision of mpnet.
    """

    name: str
    shape: tuple[int, ...]
    values: Array | None
    quantization: QuantizationParameters | None
    unsupported: bool


class GraphBuilder:
    """A graph while it is read.

    words:      names of operators by number.
    tensors:    those of the file, by number.
    names:      of the tensors so far.
    bytes_left: bytes of constants that may still be turned into reals, since many operators may read one constant.
    """

    def __init__(self, graph: NodeGraph, schema: Any, bytes_left: int) -> None:
        self.graph, self.schema, self.bytes_left = graph, schema, bytes_left
        self.words: dict[int, str] = {
            value: word for word, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)
        }
        self.tensors: list[TfliteTensor] = []
        self.names: set[str] = set()

    def add(self, tensor: TfliteTensor) -> None:
        """Append a tensor of the file."""
        self.tensors.append(tensor)
        self.names.add(tensor.name)

    def tensor(self, number: int) -> TfliteTensor:
        """Return the tensor of that number. Raises: Refused where there is none."""
        if not 0 <= number < len(self.tensors):
            raise Refused(f"reads tensor {number}, which does not exist; the file is damaged")
        return self.tensors[number]

    def name(self, number: int) -> str:
        """Return the name of a tensor."""
        return self.tensor(number).name

    def shape(self, number: int) -> tuple[int, ...]:
        """Return the shape of a tensor as the file has it, channels last."""
        return self.tensor(number).shape

    def real(self, number: int) -> Array:
        """Return the reals of a constant. Raises: Refused where the tensor is none."""
        tensor = self.tensor(number)
        if tensor.values is None:
            name = tensor.name
            if name in self.graph.constants:
                return self.graph.constants[name]
            raise Refused(f"its input {name!r} is computed when the model runs; only constants are possible there")
        parameters, values = tensor.quantization, tensor.values
        self.bytes_left -= values.nbytes
        if self.bytes_left < 0:
            raise Refused("reads constants that take more than the file, each time anew; the file is damaged")
        if parameters is None or np.issubdtype(values.dtype, np.floating):
            return values.astype(np.float32) if np.issubdtype(values.dtype, np.floating) else values
        sides = (
            [-1 if axis == parameters.axis else 1 for axis in range(values.ndim)]
            if parameters.scale.size > 1
            else [1] * values.ndim
        )
        scale, zero_point = (
            array.reshape(sides) if array.size > 1 else array for array in (parameters.scale, parameters.zero_point)
        )
        return np.asarray((values.astype(np.int64) - zero_point) * scale, np.float32)

    def integers(self, number: int) -> list[int]:
        """Return a constant of integers. Raises: Refused for one that is too long to be a shape or axes."""
        if self.real(number).size > MAX_OPERANDS:
            raise Refused(f"its input {shown(self.name(number))} has more than {MAX_OPERANDS} values; the file is damaged")
        return [int(v) for v in np.asarray(self.real(number)).ravel()]

    def weights(self, number: int, order: tuple[int, ...]) -> str:
        """Add a constant of weights with its axes in another order and return its name; what its integers mean is kept."""
        tensor = self.tensor(number)
        name = f"{tensor.name}/weights"
        self.graph.constants[name] = np.ascontiguousarray(self.real(number).transpose(order))
        if tensor.values is not None and tensor.quantization is not None and tensor.values.dtype == np.int8:
            self.graph.quantization[name] = tensor.quantization
            self.graph.stored_integers[name] = tensor.values.transpose(order)
        return name

    def constant(self, name: str, values: ArrayLike) -> str:
        """Add a constant that the file does not have, and return its name."""
        self.graph.constants[name] = np.asarray(values)
        return name

    def node(self, operator: str, name: str, inputs: Sequence[str], output: str, **attributes: object) -> str:
        """Append a node, and return the name of its result."""
        self.graph.nodes.append(Node(operator, name, list(inputs), [output], attributes))
        return output

    def operand(self, number: int, rank: int) -> str:
        """Return the name of an input that is read value by value: a tensor, or a constant that broadcasts channels first."""
        tensor = self.tensor(number)
        if tensor.values is None and tensor.name not in self.graph.constants:
            return tensor.name
        values = self.real(number)
        if rank == 4 and values.ndim:
            values = values.reshape((1,) * (4 - values.ndim) + values.shape).transpose(CHANNELS_FIRST)
        return self.constant(f"{tensor.name}/values", values)

    def activate(self, activation: int, name: str, output: str, write: Callable[[str], object]) -> None:
        """Write an operator, and behind it the activation that TensorFlow Lite has inside it.

        activation: the number of ActivationFunctionType. write: appends the operator with a result of the given name.
        """
        word = _FUSED.get(activation)
        if word is None:
            raise Refused(f"its activation {activation} has no form in a cfg")
        if not word:
            write(output)
            return
        write(f"{output}/sums")
        limits = {"Clip": {"min": 0.0, "max": 6.0}, "hardtan": {"min": -1.0, "max": 1.0}}.get(word, {})
        self.node("Clip" if limits else word, f"{name}/activation", [f"{output}/sums"], output, **limits)

    def finish(self, inputs: list[int], outputs: list[int]) -> None:
        """Name inputs and outputs, and keep what the file says of ranges."""
        for number in inputs:
            tensor = self.tensor(number)
            shape = tensor.shape
            self.graph.inputs[tensor.name] = tuple(shape[axis] for axis in CHANNELS_FIRST) if len(shape) == 4 else shape
            parameters = tensor.quantization
            if parameters is not None and parameters.bits == 8 and parameters.scale.size == 1:
                # Bytes of images are the integers themselves, of int8 moved by 128.
                mean, std = int(parameters.zero_point[0]) - parameters.low, 1 / float(parameters.scale[0])
                self.graph.metadata["mpnet.pixels"] = f'{{"mean": [{mean}], "std": [{std!r}]}}'
        self.graph.outputs = [self.name(number) for number in outputs]
        for tensor in self.tensors:
            if tensor.values is None and tensor.quantization is not None and tensor.quantization.high:
                self.graph.quantization.setdefault(tensor.name, tensor.quantization)


@dataclass(frozen=True)
class TfliteOperator:
    """One operator of a file, with what its converter asks of it.

    builder: of the graph that its nodes are appended to. name: of its node.
    inputs, outputs: numbers of its tensors, -1 for one that is left out. table: its options as the file holds them, or None.
    custom_options: those of an operator that TensorFlow Lite's schema does not have.
    """

    builder: GraphBuilder
    name: str
    inputs: list[int]
    outputs: list[int]
    table: Any
    custom_options: bytes = b""

    def options(self, kind: str) -> Any:
        """Return its options, a table of the schema of that name. Raises: Refused where there are none."""
        options = getattr(self.builder.schema, kind)()
        if self.table is None:
            raise Refused("its options are missing; the file is damaged")
        options.Init(self.table.Bytes, self.table.Pos)
        return options

    @property
    def input(self) -> str:
        """Return the name of its first input."""
        return self.builder.name(self.inputs[0])

    @property
    def output(self) -> str:
        """Return the name of its first result."""
        return self.builder.name(self.outputs[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of its first input, channels last."""
        return self.builder.shape(self.inputs[0])

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Return the shape of its first result, channels last."""
        return self.builder.shape(self.outputs[0])

    def append(self, operator: str, inputs: list[str], output: str, **attributes: object) -> str:
        """Append the node that it becomes."""
        return self.builder.node(operator, self.name, inputs, output, **attributes)

    def constant(self, role: str, values: ArrayLike) -> str:
        """Add a constant of int64 that its node reads, and return its name. role: such as 'shape', for that name."""
        return self.builder.constant(f"{self.name}/{role}", np.array(values, np.int64))

    def become_constant(self, values: Array) -> None:
        """Let its result be a constant."""
        self.builder.tensor(self.outputs[0]).values = self.builder.graph.constants[self.output] = values
        self.builder.graph.outcomes[self.name] = "constant"
