# SPDX-License-Identifier: MIT
"""A whole plan as calls with all arguments ready, for one batch size, and what a call that failed means."""

from __future__ import annotations

from typing import Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.memory import Arena, allocate
from mpnet.engine.operations import Cast, Context, Convolve, Operation, Quantize
from mpnet.engine.plan import Plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.tensor import Tensor
from mpnet.errors import BatchError, EngineError, KernelError, MpnetError, NonFiniteError, PrecisionError
from mpnet.kernels.call import Call
from mpnet.kernels.core import NONFINITE
from mpnet.kernels.device import HOST, Failure, Storage
from mpnet.messages import bytes_text
from mpnet.model.network import NETWORK_INPUT, NetworkSpec


def run_call(operation: Operation, call: Call) -> None:
    """Run one call of an operation. Raises: KernelError, PrecisionError."""
    status = call.function(*call.arguments)
    if status:
        raise make_failure(operation, call, status)


def make_failure(operation: Operation, call: Call, status: int) -> KernelError | PrecisionError:
    """Return the error that a status other than MP_OK stands for."""
    if status == NONFINITE:
        return NonFiniteError(f"{operation.name}: a value is NaN or infinite")
    if call.scaled_mode:
        return PrecisionError(f"the range of its input is too narrow or too wide for mode {call.scaled_mode}; use affine")
    return KernelError(f"{operation.name}: the kernel refused its arguments (status {status})")


class LayerFailure(EngineError):
    """A layer that has no result at these precisions, since its values or their range are not finite.

    layer: its index. reason: in words, with its name. Every configuration with these precisions of its ancestors fails so.
    """

    layer: int
    reason: str

    @classmethod
    def of(cls, network: NetworkSpec, layer: int, error: MpnetError) -> LayerFailure:
        """Make the error; it has no constructor arguments of its own, with which it could not be sent to another process."""
        reason = describe_layer_error(network, layer, error)
        failure = cls(f"{network.source}: {reason}")
        failure.layer, failure.reason = layer, reason
        return failure


def named_error(network: NetworkSpec, index: int, error: MpnetError) -> EngineError:
    """Return the error with the layer's name in front; a LayerFailure where values are not finite."""
    if isinstance(error, NonFiniteError | PrecisionError):
        return LayerFailure.of(network, index, error)
    return EngineError(f"{network.source}: {describe_layer_error(network, index, error)}")


def describe_layer_error(network: NetworkSpec, index: int, error: MpnetError) -> str:
    """Describe what went wrong, with number and name of the layer in front."""
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

    def __init__(self, prepared: Prepared, plan: Plan, arenas: Mapping[str, Arena], images: int, threads: int) -> None:
        self._plan = plan
        by_device = {weights.kernels.device.name: weights for weights in (prepared.on_host, prepared)}
        contexts = {name: Context.of(weights, threads) for name, weights in by_device.items()}
        self._devices = [context.device for context in contexts.values() if context.device is not HOST]
        storages: dict[int, Storage] = {}
        for name, arena in arenas.items():
            try:
                allocated, _ = allocate(arena, plan, images, by_device[name].arenas)
            except MemoryError:
                raise BatchError(
                    f"a batch of {images} needs {bytes_text(arena.size_bytes * images)} for activations; use a smaller batch"
                ) from None
            storages |= {slot: storage for slot, storage in enumerate(allocated) if storage is not None}
        # Stands for the image until the first run, which reads the caller's array in place.
        self._image = np.empty((images, *plan.network.in_shape), np.float32)
        storages[0] = HOST.upload(self._image)
        measured_slots = {
            step.inputs[0] for step in plan.steps if isinstance(step.operation, Quantize) and step.operation.range is None
        }
        tensors = {
            slot: Tensor(storage, plan.slots[slot].precision, measured=slot in measured_slots)
            for slot, storage in storages.items()
        }
        joined = image_conversions(plan)
        self.calls: list[tuple[int, Call]] = []
        self._image_calls: list[Call] = []
        for number, step in enumerate(plan.steps):
            inputs, out, operation = [tensors[slot] for slot in step.inputs], tensors[step.output], step.operation
            context = contexts[plan.slots[step.output].device]
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
        for context in contexts.values():
            context.binder.finish()
        binder = contexts[HOST.name].binder
        for slot, number in plan.unchecked_outputs:
            check = binder.value_range(tensors[slot].storage, np.zeros((images, 2), np.float32))
            self.calls.append((number, check))
            self._image_calls += [check] if slot == 0 else []
        self.heads: list[NDArray[np.float32]] = [tensors[slot].floats() for slot in plan.outputs]

    def run(self, x: NDArray[np.float32]) -> None:
        """Run one forward pass of x, which is C-contiguous float32 of the bound shape. Raises: EngineError."""
        self.set_image(x)
        number, failure = 0, None
        try:
            for number, call in self.calls:  # noqa: B007
                status = call.function(*call.arguments)
                if status:
                    failure = Failure(call, status)
                    break
            if self._devices:
                number, failure = self._first_failure(number, failure)
            if failure is not None:
                raise make_failure(self._plan.steps[number].operation, *failure)
        except (KernelError, PrecisionError) as error:
            raise named_error(self._plan.network, self._plan.steps[number].layer, error) from None

    def _first_failure(self, number: int, host_failure: Failure | None) -> tuple[int, Failure | None]:
        """Wait for the devices. Returns the first call that failed there, else the one that failed here."""
        failures = [failure for device in self._devices if (failure := device.finish()) is not None]
        for step, call in self.calls:
            for failure in failures:
                if failure.call is call:
                    return step, failure
        return number, host_failure

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
        """Run one of `calls`, for measurements. Raises: KernelError, PrecisionError."""
        run_call(self._plan.steps[number].operation, call)
        for device in self._devices:
            device.finish()
