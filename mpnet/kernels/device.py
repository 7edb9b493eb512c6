# SPDX-License-Identifier: MIT
"""Memory of tensors, and the device that allocates it. The CPU is the only one in this package.

Another device is a `Kernels` of its own whose `device` is one of these: tensors then stay in its memory, and a plan shows as
`Transfer` steps where they leave it. Nothing outside of kernels asks a `Storage` for a NumPy array but by `host`.
"""

from __future__ import annotations

import math
import weakref
from typing import Callable, NamedTuple, Sequence, cast

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array, DType, FloatArray
from mpnet.errors import KernelError
from mpnet.kernels.call import Call
from mpnet.kernels.memory import aligned

Dimensions = tuple[int, ...]


class Storage:
    """The memory of one dense tensor on one device, and what lies there. Base of each device's own.

    device: where it is. shape, dtype: of the tensor, as of a NumPy array.
    """

    __slots__ = ("__weakref__", "device", "dtype", "shape")

    def __init__(self, device: Device, shape: Dimensions, dtype: DType) -> None:
        self.device = device
        self.shape = shape
        self.dtype = dtype

    @property
    def size(self) -> int:
        """Return the number of values."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Return the memory that the values take, in bytes."""
        return self.size * self.dtype.itemsize

    def host(self) -> Array:
        """Return the values as a NumPy array: the memory itself on the CPU, a copy of it elsewhere."""
        return self.device.download(self)

    def floats(self) -> FloatArray:
        """Return the values of a float32 tensor, as `host` does."""
        return cast(FloatArray, self.host())

    def cut(self, start_bytes: int, shape: Dimensions, dtype: DType) -> Storage:
        """Return a tensor that lies in this memory, from a byte on."""
        raise NotImplementedError

    def lent(self, give_back: Callable[[Storage], object]) -> Storage:
        """Return this memory as another storage; `give_back` gets this one when nothing lies in the other any more."""
        raise NotImplementedError

    def reshape(self, shape: Dimensions) -> Storage:
        """Return the same values as a tensor of another shape."""
        return self.cut(0, shape, self.dtype)

    def images(self, first: int, end: int) -> Storage:
        """Return the images at these positions, first <= position < end, in place."""
        first, end, _ = slice(first, end).indices(self.shape[0])
        image_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        return self.cut(first * image_bytes, (end - first, *self.shape[1:]), self.dtype)

    def __repr__(self) -> str:
        return f"<{self.dtype} {self.shape} on {self.device.name}>"


class Failure(NamedTuple):
    """A call that failed, and its status."""

    call: Call
    status: int


class Device:
    """An allocator and mover of memory. Base of each device's own; the four methods without a body are all that one needs.

    Calls of its kernels run in the order in which they were started, and may return before they have run.
    name: as plans and messages show it.
    """

    name: str

    def allocate(self, shape: Dimensions, dtype: DType) -> Storage:
        """Return the memory for a tensor, of unknown content. Raises: MemoryError."""
        raise NotImplementedError

    def upload(self, array: Array, out: Storage | None = None) -> Storage:
        """Copy an array into the device's memory, into `out` where that is given, and return where it lies."""
        raise NotImplementedError

    def download(self, storage: Storage, out: Array | None = None) -> Array:
        """Return a copy of a tensor of this device, in `out` where that is given, once all calls before have run."""
        raise NotImplementedError

    def finish(self) -> Failure | None:
        """Wait until all calls have run. Returns the first that failed since the last time."""
        raise NotImplementedError

    def constant(self, array: Array) -> Storage:
        """Return an array that nobody changes as long as it lives; a device may keep its copy for so long."""
        return self.upload(array)

    def arena(self, size_bytes: int) -> Storage:
        """Return the bytes to lay tensors in, aligned for kernels. Raises: MemoryError."""
        return self.allocate((size_bytes,), np.dtype(np.uint8))

    def join(self, storages: Sequence[Storage]) -> Storage:
        """Return the tensors of this device as one, one after the other along their first axis."""
        return self.upload(np.concatenate([storage.host() for storage in storages]))

    def take(self, storage: Storage, positions: NDArray[np.intp]) -> Storage:
        """Return a tensor whose image i is image positions[i] of another."""
        return self.upload(np.ascontiguousarray(storage.host()[positions]))

    def replaced(self, storage: Storage, positions: NDArray[np.intp], images: Storage) -> Storage:
        """Return a copy of a tensor with other images at these positions."""
        changed = np.array(storage.host())
        changed[positions] = images.host()
        return self.upload(changed)


class HostStorage(Storage):
    """A NumPy array, C-contiguous."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array
        self.device = HOST
        self.shape = array.shape
        self.dtype = array.dtype

    @property
    def size(self) -> int:
        """Return the number of values."""
        return self.array.size

    def host(self) -> Array:
        """Return the array itself."""
        return self.array

    def cut(self, start_bytes: int, shape: Dimensions, dtype: DType) -> HostStorage:
        """Return a view of the memory from a byte on, with this shape and type."""
        size_bytes = math.prod(shape) * dtype.itemsize
        content = self.array.reshape(-1).view(np.uint8)[start_bytes : start_bytes + size_bytes]
        return HostStorage(content.view(dtype).reshape(shape))

    def lent(self, give_back: Callable[[Storage], object]) -> HostStorage:
        """Return the memory, which is given back when nothing refers to it any more."""
        # NumPy follows views to the array that owns the memory; behind a memoryview it stops at this one.
        memory = np.frombuffer(self.array.data, np.uint8)
        weakref.finalize(memory, give_back, self)
        return HostStorage(memory)

    def reshape(self, shape: Dimensions) -> HostStorage:
        """Return a view with another shape."""
        return HostStorage(self.array.reshape(shape))

    def images(self, first: int, end: int) -> HostStorage:
        """Return a view of the images from `first` up to `end`."""
        return HostStorage(self.array[first:end])


class HostDevice(Device):
    """The CPU and its memory: nothing is ever copied, and every call has run when it returns."""

    name = "cpu"

    def allocate(self, shape: Dimensions, dtype: DType) -> HostStorage:
        """Allocate memory that is not initialised."""
        return HostStorage(np.empty(shape, dtype))

    def upload(self, array: Array, out: Storage | None = None) -> Storage:
        """Copy an array to `out`, or return it as storage where there is none."""
        if out is None:
            return HostStorage(np.ascontiguousarray(array))
        np.copyto(out.host(), array)
        return out

    def download(self, storage: Storage, out: Array | None = None) -> Array:
        """Copy the storage to `out`, or return its array where there is none."""
        if out is None:
            return storage.host()
        np.copyto(out, storage.host())
        return out

    def finish(self) -> Failure | None:
        """Return None: calls of the CPU are done when they return."""
        return None

    def arena(self, size_bytes: int) -> HostStorage:
        """Allocate aligned memory for an arena."""
        return HostStorage(aligned(size_bytes))

    def join(self, storages: Sequence[Storage]) -> HostStorage:
        """Join storages along the images."""
        return HostStorage(np.concatenate([storage.host() for storage in storages]))


HOST = HostDevice()
"""The CPU."""

Values = Storage | Array
"""A tensor, or on the CPU a NumPy array, which is one there and a constant elsewhere."""


def array_of(values: Values) -> Array:
    """Return the array that kernels of the CPU read and write. Raises: KernelError for memory of another device."""
    if type(values) is HostStorage:
        return values.array
    if isinstance(values, Storage):
        raise KernelError(f"a tensor {values!r} went to kernels of the {HOST.name}; transfer it first")
    return values


def copy_call(source: Storage, target: Storage) -> Call:
    """Return the call that copies a tensor to a place on another device; one from the CPU may read another array later."""
    if source.device is HOST:
        return Call(_copy_in, (array_of(source), target), 0)
    return Call(_copy_across, (source, target))


def _copy_in(array: Array, target: Storage) -> None:
    target.device.upload(array, target)


def _copy_across(source: Storage, target: Storage) -> None:
    if target.device is HOST:
        source.device.download(source, array_of(target))
    else:
        target.device.upload(source.host(), target)
