"""What every operation tells about itself: all that plans, fusion, costs and sessions ask, at one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, ClassVar, Mapping, Protocol, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.tensor import Tensor
from mpnet.kernels.call import Call
from mpnet.kernels.calls import Binder, Kernels
from mpnet.kernels.interface import ConvShape, PackedConv
from mpnet.model.network import LayerSpec, NetworkSpec, Shape
from mpnet.model.precision import Precision

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class PreparedConvolution:
    """What the kernel needs. weight_scale: (out,) of quantised weights, else None."""

    packed: PackedConv
    bias: Floats
    weight_scale: Floats | None
    activation: str


class PreparedWeights(Protocol):
    """What operations ask of `mpnet.engine.prepare.Prepared`, which knows them and so stands above them."""

    @property
    def kernels(self) -> Kernels: ...

    @property
    def values(self) -> Mapping[int, Floats]: ...

    def convolution(self, operation: Any) -> PreparedConvolution: ...

    def fixed(self, shape: ConvShape, precision: Precision, weights: Callable[[], Floats]) -> PackedConv: ...

    def shortcut_weights(self, index: int) -> Floats: ...


@dataclass(eq=False)
class Context:
    """What operations bind with."""

    prepared: PreparedWeights
    binder: Binder
    threads: int

    @classmethod
    def of(cls, prepared: PreparedWeights, threads: int) -> Context:
        """A context with a binder of its own. Raises: KernelError for a number of threads that makes no sense."""
        return cls(prepared, Binder(prepared.kernels, threads), threads)

    def bind(self, operation: Operation, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """The calls that fill `out`. Raises: KernelError, PrecisionError, EngineError of weights that cannot be packed."""
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
    """

    is_conversion: ClassVar[bool] = False
    is_head: ClassVar[bool] = False
    moves_values: ClassVar[bool] = False
    keeps_order: ClassVar[bool] = False
    checks_result: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """What plans, tables and measured times call it."""
        return type(self).__name__

    @property
    def detail(self) -> str:
        """What a table says beside the name."""
        return ""

    def gives(self, takes: Precision) -> Precision | None:
        """How its result is stored when its inputs are stored as `takes`; None when it cannot take them."""
        return takes if self.moves_values or not takes.carries_scale else None

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        """Of its result, for one image."""
        return inputs[0]

    def weight_bytes(self, layer: LayerSpec) -> int:
        """Bytes of its parameters, which are the layer's, when stored."""
        return 0

    def joined(self, reader: Operation) -> Operation | None:
        """This operation and the only reader of its result as one, where the kernels can do that."""
        return None

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """The calls that fill `out`, whose memory is there, from the inputs. Raises: KernelError, PrecisionError."""
        raise NotImplementedError
