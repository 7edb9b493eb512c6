# SPDX-License-Identifier: MIT
"""The interface of operations: all that plans, fusion, costs, sessions and bundles ask, at one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, ClassVar, Generic, Mapping, Protocol, Sequence, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array, DType
from mpnet.engine.options import LayerQuantization
from mpnet.engine.tensor import Tensor
from mpnet.kernels.call import Call
from mpnet.kernels.calls import Binder
from mpnet.kernels.device import Device, Storage
from mpnet.kernels.implementation import Kernels
from mpnet.kernels.interface import ACTIVATION_CODE, ConvShape, PackedConv
from mpnet.model.layers import DecodedSpec, DetectionSpec, GaussianYoloSpec, RegionSpec, YoloSpec
from mpnet.model.network import LayerSpec, NetworkSpec, Shape
from mpnet.model.precision import FLOAT32, FP32, Precision
from mpnet.quantization.fixed_point import IntegerConstants

Floats = NDArray[np.float32]
StepFields = dict[str, int | float | Sequence[float]]
"""Fields of a bundle's mpb_step by name."""


@dataclass(frozen=True)
class PreparedConvolution:
    """The weights of one convolution. weight_scale: (out,) of quantised weights, else None; integer: of IntegerConvolve."""

    packed: PackedConv
    bias: Floats
    weight_scale: Floats | None
    activation: str
    integer: IntegerConstants | None = None


class PreparedWeights(Protocol):
    """The weights that operations ask of `mpnet.engine.prepare.Prepared`, which knows operations and so stands above them."""

    @property
    def kernels(self) -> Kernels:
        """Return the kernels that the weights are packed for."""
        ...

    @property
    def values(self) -> Mapping[int, Floats]:
        """Return the values of layers that are no convolutions, by layer index."""
        ...

    def convolution(self, operation: Any) -> PreparedConvolution:
        """Return the packed weights of a convolution."""
        ...

    def fixed(self, shape: ConvShape, precision: Precision, weights: Callable[[], Floats]) -> PackedConv:
        """Return packed weights that no layer has, of a convolution that the operation itself defines."""
        ...

    def shortcut_weights(self, index: int) -> Floats:
        """Return the normalised weights of a [shortcut], float32 (layers, channels)."""
        ...


@dataclass(eq=False)
class Context:
    """The means by which operations bind their calls: weights, a binder, the number of threads, where the tensors lie."""

    prepared: PreparedWeights
    binder: Binder
    threads: int
    device: Device

    def allocate(self, shape: tuple[int, ...], dtype: DType = FLOAT32.dtype) -> Storage:
        """Return new memory on the device, of unknown content."""
        return self.device.allocate(shape, dtype)

    @classmethod
    def of(cls, prepared: PreparedWeights, threads: int) -> Context:
        """Return a context with a binder of its own. Raises: KernelError for a number of threads that makes no sense."""
        return cls(prepared, Binder(prepared.kernels, threads), threads, prepared.kernels.device)

    def bind(self, operation: Operation, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`.

        Raises: KernelError, PrecisionError, EngineError of weights that cannot be packed.
        """
        if operation.moves_values:
            out.code_map = inputs[0].code_map
        return operation.bind(self, inputs, out)


@dataclass(frozen=True)
class Operation:
    """Base of all operations.

    is_conversion: whether it changes how a tensor is stored and nothing else.
    is_head:       whether it hands its tensor over to box decoding, unchanged: it makes no tensor.
    moves_values:  whether each value of its result is one of its input's: the result keeps the input's scale.
    keeps_order:   whether a quantisation by a fixed range may as well come before it, to the same bits.
    checks_result: whether it refuses a result that is not finite.
    functions:     the kernels that it calls, by their names in `Kernels.supports`; (): those of the CPU must run it.
    bundle:        its name in bundles, MPB_<name> of csrc/mprun/bundle.h; '': they do not have it.
    """

    is_conversion: ClassVar[bool] = False
    is_head: ClassVar[bool] = False
    moves_values: ClassVar[bool] = False
    keeps_order: ClassVar[bool] = False
    checks_result: ClassVar[bool] = False
    functions: ClassVar[tuple[str, ...]] = ()
    bundle: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """Return the name of the operation in plans, tables and measured times."""
        return type(self).__name__

    @property
    def detail(self) -> str:
        """Return what a table shows beside the name, such as a window's size; '' for nothing."""
        return ""

    def output_precision(self, input_precision: Precision) -> Precision | None:
        """Return how its result is stored when its inputs are stored as `takes`; None when it cannot take them."""
        return input_precision if self.moves_values or not input_precision.carries_scale else None

    def needs(self, input_precision: Precision) -> tuple[tuple[str, Precision], ...]:
        """Return what a device must support to run it on inputs stored as `takes`, as `Kernels.supports` asks; (): the CPU."""
        return tuple((function, input_precision) for function in self.functions)

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        """Return the shape (h, w, c) of the result for one image, from the shapes of the inputs."""
        return inputs[0]

    def weight_bytes(self, layer: LayerSpec) -> int:
        """Return the bytes of its parameters, which are the layer's, when stored."""
        return 0

    def joined(self, reader: Operation) -> Operation | None:
        """Join this operation with the only reader of its result, where the kernels can do that."""
        return None

    def step_fields(self) -> StepFields:
        """Return the fields of a bundle's mpb_step that the operation decides."""
        return {}

    def step_values(self, prepared: PreparedWeights, inputs: Sequence[Shape], result: Shape) -> Array | None:
        """Return what a bundle's step brings along beside its fields, as mpb_step's `values` says; None for nothing."""
        return None

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`, whose memory is there, from the inputs. Raises: KernelError, PrecisionError."""
        raise NotImplementedError


@dataclass(frozen=True)
class Activated(Operation):
    """Base of operations that end with an activation, of ACTIVATIONS."""

    activation: str = "linear"

    @property
    def detail(self) -> str:
        """Return the activation, '' for a linear one."""
        return "" if self.activation == "linear" else self.activation

    def step_fields(self) -> StepFields:
        """Return the fields of a bundle's mpb_step that the operation decides."""
        return {"activation": ACTIVATION_CODE[self.activation]}


_Layer = TypeVar("_Layer", bound=LayerSpec)


@dataclass(frozen=True)
class Rule(Generic[_Layer]):
    """The operations of one kind of layer.

    operations: for (layer, precision, how it is quantised): the first on all inputs, each further one on the result before
                it; (): it passes its only input on.
    slice_input: what it takes of an input of a shape, or how that is rearranged first; None: all of it, as it is.
    """

    operations: Callable[[_Layer, Precision, LayerQuantization], tuple[Operation, ...]]
    slice_input: Callable[[_Layer, Shape], Operation | None] | None = None


RULES: dict[type[LayerSpec], Rule[LayerSpec]] = {}
"""By the layer's type. A layer that is one operation has its rule beside that operation, all others in mpnet.engine.rules."""


def declare_rule(
    kind: type[_Layer],
    operations: Callable[[_Layer, Precision, LayerQuantization], tuple[Operation, ...]],
    slice_input: Callable[[_Layer, Shape], Operation | None] | None = None,
) -> None:
    """Declare the operations of layers of a kind, as `Rule` says."""
    # Who takes a rule by its layer's type gives it layers of that type.
    RULES[kind] = cast("Rule[LayerSpec]", Rule(operations, slice_input))


def one_operation(kind: type[_Layer], operation: Callable[[_Layer], Operation]) -> None:
    """Declare that layers of a kind are one operation, which `operation` makes of the layer."""
    declare_rule(kind, lambda layer, precision, how: (operation(layer),))


@dataclass(frozen=True)
class Yolo(Operation):
    """The hand-over of the tensor to box decoding, unchanged."""

    is_head: ClassVar[bool] = True
    bundle: ClassVar[str] = "YOLO"

    def output_precision(self, input_precision: Precision) -> Precision | None:
        """Return fp32 for fp32; other precisions are not supported."""
        return input_precision if input_precision is FP32 else None

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return no calls: the values pass through unchanged."""
        return []


for _head in (YoloSpec, DecodedSpec, GaussianYoloSpec, RegionSpec, DetectionSpec):
    one_operation(_head, lambda layer: Yolo())
