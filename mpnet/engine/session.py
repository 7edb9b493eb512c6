# SPDX-License-Identifier: MIT
"""Sessions that run a plan: memory planned, weights packed and every kernel call bound before the first image arrives.

The way of a pass: `Session.forward` -> `BoundPlan.run` -> the `Call` that `Operation.bind` made through `Binder` and
`NativeKernels.call` -> mp_<function> of csrc/mpnet.h.
"""

from __future__ import annotations

import threading
import warnings
from typing import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array
from mpnet.engine.bind import BoundPlan, named_error
from mpnet.engine.execute import execute
from mpnet.engine.fuse import fuse_plan
from mpnet.engine.memory import Arena, plan_arena
from mpnet.engine.operations import Convolve
from mpnet.engine.placement import place_plan
from mpnet.engine.plan import Plan, Step
from mpnet.engine.prepare import Prepared
from mpnet.engine.tensor import Tensor, host_tensor
from mpnet.errors import BatchError, DataError, EngineError, FallbackWarning, KernelError, PrecisionError
from mpnet.kernels.device import HOST

MAX_BATCH = 4096
Observer = Callable[[int, Step, Sequence[Tensor], Tensor], None]
"""Called after each step with its number, the step, its inputs and its result, which are valid during the call only."""


class Session:
    """One plan, ready to run. One forward pass at a time; sessions of several threads may share `prepared`.

    threads: of the kernels; never changes a bit.
    fuse:    join steps where the bits stay the same.
    """

    def __init__(self, prepared: Prepared, plan: Plan, threads: int = 1, fuse: bool = True) -> None:
        if threads < 1:
            raise EngineError(f"threads is {threads}; use 1 or more")
        if prepared.network is not plan.network and prepared.network != plan.network:
            raise EngineError("the weights were prepared for another network than the plan's")
        self.prepared = prepared
        self.plan = plan = place_plan(plan, prepared.kernels)
        self.threads = threads
        self.run_plan = fuse_plan(plan) if fuse else plan
        self.arena: Arena = plan_arena(self.run_plan)
        names = dict.fromkeys(slot.device for slot in self.run_plan.slots)
        self._arenas = {name: plan_arena(self.run_plan, name) for name in names} if len(names) > 1 else {HOST.name: self.arena}
        self._bound: dict[int, BoundPlan] = {}
        self._most_images = MAX_BATCH
        self._lock = threading.Lock()

    def forward(self, batch: NDArray[np.float32], copy: bool = True) -> list[NDArray[np.float32]]:
        """Return the tensors that enter the heads (without heads: the last layer's), each (n, h, w, c) float32.

        batch: (n, height, width, channels) float32, as the network's input; read in place when C-contiguous.
        copy:  False gives views that the next forward pass overwrites.
        A batch that is too large for a device's memory goes through in parts from then on, with a FallbackWarning.
        Raises: DataError for another shape, EngineError that names the layer for a tensor that is not finite.
        """
        x = self._check(batch)
        with self._lock:
            while True:
                images = min(len(x), self._most_images)
                try:
                    return self._forward_in_parts(x, images, copy)
                except (BatchError, MemoryError):
                    if images == 1 or self.prepared.kernels.device is HOST:
                        raise
                self._bound.clear()
                self._most_images = images // 2
                line = (
                    f"{self.prepared.kernels.name}: no memory for a batch of {images}; {self._most_images} go through at once"
                )
                warnings.warn(line, FallbackWarning, stacklevel=2)

    def _forward_in_parts(self, x: NDArray[np.float32], images: int, copy: bool) -> list[NDArray[np.float32]]:
        """Run so many images at a time and return the heads of all."""
        parts: list[list[NDArray[np.float32]]] = []
        for first in range(0, len(x), images):
            part = x[first : first + images]
            bound = self._bind(len(part))
            bound.run(part)
            parts.append([head.copy() if copy or images < len(x) else head for head in bound.heads])
        return parts[0] if len(parts) == 1 else [np.concatenate(heads) for heads in zip(*parts, strict=True)]

    def observe(self, batch: NDArray[np.float32], observer: Observer) -> list[NDArray[np.float32]]:
        """Run as `forward`, unfused and step by step, showing each step's result to `observer`."""
        plan = self.plan
        tensors: dict[int, Tensor] = {0: host_tensor(self._check(batch))}
        for number, step in enumerate(plan.steps):
            inputs = [tensors[slot] for slot in step.inputs]
            try:
                result = execute(step.operation, inputs, self.prepared, self.threads)
            except (KernelError, PrecisionError) as error:
                raise named_error(plan.network, step.layer, error) from None
            tensors[step.output] = result
            observer(number, step, inputs, result)
            for slot in step.inputs:
                if plan.slots[slot].last == number and slot != step.output:
                    tensors.pop(slot, None)  # a step may read one slot twice
        for slot, number in plan.unchecked_outputs:
            try:
                self.prepared.on_host.kernels.value_range(tensors[slot].host(), threads=self.threads)
            except KernelError as error:
                raise named_error(plan.network, plan.steps[number].layer, error) from None
        return [tensors[slot].floats() for slot in plan.outputs]

    def bound(self, images: int) -> BoundPlan:
        """Return the bound plan for batches of this many images, for measurements."""
        with self._lock:
            return self._bind(images)

    def _bind(self, images: int) -> BoundPlan:
        bound = self._bound.get(images)
        if bound is None:
            # Batches come in one size and a last, smaller one; more would only hold memory.
            if len(self._bound) >= 2:
                self._bound.pop(next(iter(self._bound)))
            slots = self.run_plan.slots
            for prepared in {self.prepared, self.prepared.on_host}:
                name = prepared.kernels.device.name
                steps = [step for step in self.run_plan.steps if slots[step.output].device == name]
                prepared.pack([s.operation.alone for s in steps if isinstance(s.operation, Convolve)], self.threads)
            bound = BoundPlan(self.prepared, self.run_plan, self._arenas, images, self.threads)
            self._bound[images] = bound
        return bound

    def _check(self, batch: Array) -> NDArray[np.float32]:
        expected_shape = self.plan.network.in_shape
        if not isinstance(batch, np.ndarray) or batch.ndim != 4 or batch.shape[1:] != expected_shape or len(batch) == 0:
            shape = getattr(batch, "shape", type(batch).__name__)
            height, width, channels = expected_shape
            raise DataError(f"the network takes batches of shape (n, {height}, {width}, {channels}), not {shape}")
        if len(batch) > MAX_BATCH:
            raise DataError(f"a batch of {len(batch)} images; use at most {MAX_BATCH} at once")
        if batch.dtype != np.float32:
            raise DataError(f"the network takes float32 values from 0 to 1, not {batch.dtype}")
        return np.ascontiguousarray(batch)
