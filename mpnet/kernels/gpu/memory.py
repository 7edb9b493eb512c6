# SPDX-License-Identifier: MIT
"""Tensors in a GPU's memory."""

from __future__ import annotations

import math
import threading
import weakref
from typing import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array, DType
from mpnet.kernels.call import Call
from mpnet.kernels.device import Device, Dimensions, Failure, Storage
from mpnet.kernels.gpu.driver import NO_FAILURE, Driver, Memory

_STATUSES = 8
"""Of a call: its number times this, plus its status, is what a kernel leaves."""


class GpuStorage(Storage):
    """A tensor at a byte of a piece of memory."""

    __slots__ = ("memory", "start_bytes")
    device: GpuDevice

    def __init__(self, device: GpuDevice, shape: Dimensions, dtype: DType, memory: Memory, start_bytes: int = 0) -> None:
        super().__init__(device, shape, dtype)
        self.memory, self.start_bytes = memory, start_bytes

    def cut(self, start_bytes: int, shape: Dimensions, dtype: DType) -> GpuStorage:
        """Return a tensor that lies in this memory, from a byte on."""
        return GpuStorage(self.device, tuple(shape), np.dtype(dtype), self.memory, self.start_bytes + start_bytes)

    def lent(self, give_back: Callable[[Storage], object]) -> GpuStorage:
        """Return the memory, which is given back when nothing lies in it any more."""
        memory = Memory(self.memory.handle)
        weakref.finalize(memory, give_back, self)
        return GpuStorage(self.device, self.shape, self.dtype, memory, self.start_bytes)


class GpuDevice(Device):
    """The memory of a GPU, and the calls that its threads' queues hold.

    Copies between the CPU and the device are waited for, since arrays of the CPU may change right after.
    """

    def __init__(self, driver: Driver) -> None:
        self.name = driver.description.name
        self.driver = driver
        self._calls = _StartedCalls()
        self._constants: dict[int, tuple[weakref.ref[Array], GpuStorage]] = {}
        self._lock = threading.Lock()

    def allocate(self, shape: Dimensions, dtype: DType) -> GpuStorage:
        """Return the memory for a tensor, of unknown content. Raises: MemoryError."""
        size_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        return GpuStorage(self, tuple(shape), np.dtype(dtype), self.driver.allocate(max(size_bytes, 1)))

    def upload(self, array: Array, out: Storage | None = None) -> GpuStorage:
        """Copy an array into the device's memory, into `out` where that is given, and return where it lies."""
        target = self.allocate(array.shape, array.dtype) if out is None else self._own(out)
        if array.size:
            self.driver.write(target.memory, target.start_bytes, np.ascontiguousarray(array, target.dtype))
        return target

    def download(self, storage: Storage, out: Array | None = None) -> Array:
        """Return a copy of a tensor of this device, in `out` where that is given, once all calls before have run."""
        source = self._own(storage)
        is_dense = out is not None and out.flags.c_contiguous and out.dtype == source.dtype
        values: Array = out if out is not None and is_dense else np.empty(source.shape, source.dtype)
        if values.size:
            self.driver.read(source.memory, source.start_bytes, values)
        if out is not None and not is_dense:
            np.copyto(out, values)
            return out
        return values

    def constant(self, array: Array) -> GpuStorage:
        """Return an array that nobody changes as long as it lives; its copy is kept for so long."""
        key = id(array)
        with self._lock:
            kept = self._constants.get(key)
            if kept is not None and kept[0]() is array:
                return kept[1]
        storage = self.upload(array)
        with self._lock:
            self._constants[key] = (weakref.ref(array, lambda _: self._forget(key)), storage)
        return storage

    def _forget(self, key: int) -> None:
        # Without the lock: the array may die in a thread that holds it.
        kept = self._constants.get(key)
        if kept is not None and kept[0]() is None:
            self._constants.pop(key, None)

    def join(self, storages: Sequence[Storage]) -> GpuStorage:
        """Return the tensors of this device as one, one after the other along their first axis."""
        sources = [self._own(storage) for storage in storages]
        images = sum(source.shape[0] for source in sources)
        result = self.allocate((images, *sources[0].shape[1:]), sources[0].dtype)
        start = 0
        for source in sources:
            self._copy(source, 0, result, start, source.nbytes)
            start += source.nbytes
        return result

    def take(self, storage: Storage, positions: NDArray[np.intp]) -> GpuStorage:
        """Return a tensor whose image i is image positions[i] of another."""
        source = self._own(storage)
        result = self.allocate((len(positions), *source.shape[1:]), source.dtype)
        self._copy_images(source, positions.tolist(), result, range(len(positions)))
        return result

    def replaced(self, storage: Storage, positions: NDArray[np.intp], images: Storage) -> GpuStorage:
        """Return a copy of a tensor with other images at these positions."""
        source = self._own(storage)
        result = self.allocate(source.shape, source.dtype)
        self._copy(source, 0, result, 0, source.nbytes)
        self._copy_images(self._own(images), range(len(positions)), result, positions.tolist())
        return result

    def _copy_images(self, source: GpuStorage, chosen: Sequence[int], target: GpuStorage, places: Sequence[int]) -> None:
        image_bytes = math.prod(source.shape[1:]) * source.dtype.itemsize
        for image, place in zip(chosen, places, strict=True):
            self._copy(source, image * image_bytes, target, place * image_bytes, image_bytes)

    def _copy(self, source: GpuStorage, source_bytes: int, target: GpuStorage, target_bytes: int, size_bytes: int) -> None:
        if size_bytes:
            starts = source.start_bytes + source_bytes, target.start_bytes + target_bytes
            self.driver.copy(source.memory, starts[0], target.memory, starts[1], size_bytes)

    def started(self, call: Call) -> int:
        """Return the number of a call that the thread is about to start."""
        calls = self._calls.of_thread
        calls.append(call)
        return len(calls) - 1

    def finish(self) -> Failure | None:
        """Wait until all calls of this thread have run. Returns the first that failed since the last time."""
        calls, self._calls.of_thread = self._calls.of_thread, []
        status = self.driver.status()
        return None if status == NO_FAILURE else Failure(calls[status // _STATUSES], status % _STATUSES)

    @staticmethod
    def _own(storage: Storage) -> GpuStorage:
        assert isinstance(storage, GpuStorage)
        return storage


class _StartedCalls(threading.local):
    """The calls of one thread since it last waited for them."""

    def __init__(self) -> None:
        self.of_thread: list[Call] = []
