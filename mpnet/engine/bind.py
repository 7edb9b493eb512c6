# SPDX-License-Identifier: MIT
"""A whole plan as calls with all arguments ready, for one batch size, and what a call that failed means."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.memory import Arena, allocate
from mpnet.engine.operations import Cast, Context, Convolve, Operation, Quantize
from mpnet.engine.plan import Plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.tensor import ScaleCall, Tensor
from mpnet.errors import EngineError, KernelError, MpnetError, NonFiniteError, PrecisionError
from mpnet.kernels.call import Call
from mpnet.kernels.core import NONFINITE
from mpnet.messages import bytes_text
from mpnet.model.network import NETWORK_INPUT, NetworkSpec


def run_call(operation: Operation, call: Call) -> None:
    """One call of an operation. Raises: KernelError, PrecisionError."""
    status = call.function(*call.arguments)
    if status:
        raise failure(operation, call, status)


def failure(operation: Operation, call: Call, status: int) -> KernelError | PrecisionError:
    """The error that a status other than MP_OK stands for."""
    if status == NONFINITE:
        return NonFiniteError(f"{operation.name}: a value is NaN or infinite")
    if isinstance(call, ScaleCall):
        return PrecisionError(f"the range of its input is too narrow or too wide for mode {call.mode}; use affine")
    return KernelError(f"{operation.name}: the kernel refused its arguments (status {status})")


class LayerFailure(EngineError):
    """A layer that has no result at these precisions, since its values or their range are not finite.

    layer: its index. reason: in words, with its name. Every configuration with these precisions of its ancestors fails so.
    """

    layer: int
    reason: str

    @classmethod
    def of(cls, network: NetworkSpec, layer: int, error: MpnetError) -> LayerFailure:
        """Not by arguments of its own, with which it could not be sent to another process."""
        reason = with_layer(network, layer, error)
        failure = cls(f"{network.source}: {reason}")
        failure.layer, failure.reason = layer, reason
        return failure


def named_error(network: NetworkSpec, index: int, error: MpnetError) -> EngineError:
    """The error with the layer's name in front; a LayerFailure where values are not finite."""
    if isinstance(error, NonFiniteError | PrecisionError):
        return LayerFailure.of(network, index, error)
    return EngineError(f"{network.source}: {with_layer(network, index, error)}")


def with_layer(network: NetworkSpec, index: int, error: MpnetError) -> str:
    """What went wrong, with number and name of the layer in front."""
    where = "the image" if index == NETWORK_INPUT else f"layer {index} ({network.layers[index].name})"
    return f"{where}: {error}"


def image_conversions(plan: Plan) -> set[int]:
    """Return the numbers of the steps that convert the image for one convolution, which then does it while it reads.

    The image is the largest tensor of most networks, comes from memory, and stays where it is, so that no other tensor's
    place changes. defer_image_conversions of csrc/mprun/pass.c has the same rule.
    """
    readers: dict[int, list[int]] = {}
    for number, step in enumerate(plan.steps):
        for slot in step.inputs:
            readers.setdefault(slot, []).append(number)
    conversions = set()
    for number, step in enumerate(plan.steps):
        if step.inputs == (0,) and isinstance(step.operation, Quantize | Cast) and step.operation.rules is not None:
            consumers = readers.get(step.output, [])
            if (
                len(consumers) == 1
                and isinstance(plan.steps[consumers[0]].operation, Convolve)
                and step.output not in plan.outputs
            ):
                conversions.add(number)
    return conversions


class BoundPlan:
    """Memory and calls for batches of `images`.

    heads: the results after `run`, (images, h, w, c) float32; overwritten by the next.
    calls: (step number, call), in the order of running.
    """

    def __init__(self, prepared: Prepared, plan: Plan, arena: Arena, images: int, threads: int) -> None:
        self._plan = plan
        try:
            arrays, self._memory = allocate(arena, plan, images, prepared.arenas)
        except MemoryError:
            raise EngineError(
                f"a batch of {images} needs {bytes_text(arena.size_bytes * images)} for activations; use a smaller batch"
            ) from None
        # Stands for the image until the first run, which reads the caller's array in place.
        arrays[0] = self._image = np.empty((images, *plan.network.in_shape), np.float32)
        measured = {
            step.inputs[0] for step in plan.steps if isinstance(step.operation, Quantize) and step.operation.range is None
        }
        tensors = {
            slot: Tensor(data, plan.slots[slot].precision, measured=slot in measured)
            for slot, data in enumerate(arrays)
            if data is not None
        }
        joined = image_conversions(plan)
        context = Context.of(prepared, threads)
        self.calls: list[tuple[int, Call]] = []
        self._image_calls: list[Call] = []
        for number, step in enumerate(plan.steps):
            inputs, out, operation = [tensors[slot] for slot in step.inputs], tensors[step.output], step.operation
            try:
                if number in joined:
                    assert isinstance(operation, Quantize | Cast)
                    calls, rules = operation.bind_scales(context, inputs[0], out), operation.rules
                    assert rules is not None
                    out.unconverted = inputs[0], rules
                else:
                    calls = context.bind(operation, inputs, out)
            except (KernelError, PrecisionError) as error:
                raise named_error(plan.network, step.layer, error) from None
            self.calls += [(number, call) for call in calls]
            self._image_calls += calls if 0 in step.inputs or inputs[0].unconverted is not None else []
        context.binder.finish()
        for slot, number in plan.unchecked_outputs:
            check = context.binder.value_range(tensors[slot].data, np.zeros((images, 2), np.float32))
            self.calls.append((number, check))
            self._image_calls += [check] if slot == 0 else []
        self.heads: list[NDArray[np.float32]] = [tensors[slot].data for slot in plan.outputs]

    def run(self, x: NDArray[np.float32]) -> None:
        """One forward pass of x, which is C-contiguous float32 of the bound shape. Raises: EngineError."""
        self.set_image(x)
        number = 0
        try:
            for number, call in self.calls:
                status = call.function(*call.arguments)
                if status:
                    raise failure(self._plan.steps[number].operation, call, status)
        except (KernelError, PrecisionError) as error:
            raise named_error(self._plan.network, self._plan.steps[number].layer, error) from None

    def set_image(self, x: NDArray[np.float32]) -> None:
        """Let the first steps read x in place; it must stay alive until `run` is over."""
        if x is not self._image:
            for call in self._image_calls:
                call.set_input(x)
            self._image = x
            for position, slot in enumerate(self._plan.outputs):
                if slot == 0:
                    self.heads[position] = x

    def run_call(self, number: int, call: Call) -> None:
        """One of `calls`, for measurements. Raises: KernelError, PrecisionError."""
        run_call(self._plan.steps[number].operation, call)
