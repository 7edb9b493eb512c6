# SPDX-License-Identifier: MIT
"""A second device made of host memory that nobody may read as NumPy: what another device's kernels must bring, and no more.

Its kernels are those of the CPU on the bytes that it holds. They start when `finish` or a download waits for them, as on a
device with a queue, and leave their status there.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Callable

import numpy as np
from numpy.typing import NDArray

from mpnet.kernels.call import Call
from mpnet.kernels.codes import CScheme, scale_call
from mpnet.kernels.device import Device, Dimensions, Failure, HostStorage, Storage, Values
from mpnet.kernels.implementation import Kernels
from mpnet.kernels.interface import ConvShape, PackedConv
from mpnet.kernels.scales import ImageScales
from mpnet.model.precision import Precision


class RemoteStorage(Storage):
    """Bytes behind a capsule: there is no way from here to an array but `RemoteDevice.download`."""

    __slots__ = ("_open_memory",)

    def __init__(
        self, device: RemoteDevice, shape: Dimensions, dtype: np.dtype[Any], open_memory: Callable[[], HostStorage]
    ) -> None:
        super().__init__(device, shape, dtype)
        self._open_memory = open_memory

    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        raise AssertionError("memory of a device was read as a NumPy array")

    __getitem__ = __len__ = __iter__ = __array__

    def cut(self, start_bytes: int, shape: Dimensions, dtype: np.dtype[Any]) -> RemoteStorage:
        piece = self._open_memory().cut(start_bytes, shape, dtype)
        assert isinstance(self.device, RemoteDevice)
        return RemoteStorage(self.device, shape, dtype, lambda: piece)

    def lent(self, give_back: Callable[[Storage], Any]) -> RemoteStorage:
        assert isinstance(self.device, RemoteDevice)
        lent_memory = self._open_memory().lent(lambda _: give_back(self))
        return RemoteStorage(self.device, self.shape, self.dtype, lambda: lent_memory)


class RemoteDevice(Device):
    """Counts what crosses its border: `transferred_bytes` has the bytes of each upload and download."""

    name = "remote"

    def __init__(self) -> None:
        self.transferred_bytes: dict[str, list[int]] = {"in": [], "out": []}
        self.queue: list[tuple[Call, Call]] = []
        self._failure: Failure | None = None

    def allocate(self, shape: Dimensions, dtype: np.dtype[Any]) -> RemoteStorage:
        memory = HostStorage(np.frombuffer(bytearray(math.prod(shape) * np.dtype(dtype).itemsize), dtype).reshape(shape))
        return RemoteStorage(self, tuple(shape), np.dtype(dtype), lambda: memory)

    def upload(self, array: NDArray[Any], out: Storage | None = None) -> Storage:
        self._wait()
        target = self.allocate(array.shape, array.dtype) if out is None else out
        np.copyto(get_host_storage(target).array, array)
        self.transferred_bytes["in"].append(array.nbytes)
        return target

    def constant(self, array: NDArray[Any]) -> Storage:
        storage = self.upload(array)
        self.transferred_bytes["in"].pop()
        return storage

    def download(self, storage: Storage, out: NDArray[Any] | None = None) -> NDArray[Any]:
        self._wait()
        self.transferred_bytes["out"].append(storage.nbytes)
        result = np.empty(storage.shape, storage.dtype) if out is None else out
        np.copyto(result, get_host_storage(storage).array)
        return result

    def finish(self) -> Failure | None:
        self._wait()
        failure, self._failure = self._failure, None
        return failure

    def _wait(self) -> None:
        queue, self.queue = self.queue, []
        for call, work in queue:
            if self._failure is None:
                status = work.function(*work.arguments)
                if status:
                    self._failure = Failure(call, status)


def get_host_storage(storage: Storage) -> HostStorage:
    """Return the memory of a remote tensor, for its own kernels."""
    assert isinstance(storage, RemoteStorage)
    return storage._open_memory()


def _to_host_value(value: Any) -> Any:
    return get_host_storage(value) if isinstance(value, Storage) else value


class RemoteKernels(Kernels):
    """Kernels of the remote device. missing: functions that they do not support, or (function, precision's name)."""

    name = "remote"

    def __init__(self, host: Kernels, unsupported: tuple[Any, ...] = ()) -> None:
        self.device: RemoteDevice = RemoteDevice()
        self.call_counts: Counter[str] = Counter()
        self._host, self._unsupported = host, unsupported

    @property
    def host_kernels(self) -> Kernels:
        return self._host

    def supports(self, function: str, precision: Precision) -> bool:
        return function not in self._unsupported and (function, precision.name) not in self._unsupported

    def precisions(self) -> tuple[str, ...]:
        return self._host.precisions()

    def pack_conv(self, shape: ConvShape, precision: Precision, weights: NDArray[Any]) -> PackedConv:
        packed = self._host.pack_conv(shape, precision, weights)
        return PackedConv(shape, precision, self.name, packed.size_bytes, packed.data, packed)

    def takes_sums(self, packed: PackedConv) -> bool:
        return self._host.takes_sums(packed.c_shape)

    def _queued(self, name: str, work: Call) -> Call:
        memory = np.empty(work.scratch_bytes + 64, np.uint8)
        start = -memory.ctypes.data % 64
        work.use_scratch(memory[start : start + work.scratch_bytes])
        call = Call(lambda: None, (), keep=(memory, work), scaled_mode=work.scaled_mode)

        def enqueue() -> None:
            self.call_counts[name] += 1
            self.device.queue.append((call, work))

        call.function = enqueue
        return call

    def call(self, function: str, x: Values, *arguments: Any) -> Call:
        assert isinstance(x, RemoteStorage), (function, x)
        return self._queued(function, self._host.call(function, get_host_storage(x), *map(_to_host_value, arguments)))

    def conv_call(self, packed: PackedConv, x: Values, fields: dict[str, Any]) -> Call:
        assert isinstance(x, RemoteStorage)
        arguments = {name: _to_host_value(value) for name, value in fields.items()}
        return self._queued("conv", self._host.conv_call(packed.c_shape, get_host_storage(x), arguments))

    def ranges_to_scales(self, ranges: Storage, params: Storage, scales: ImageScales, scheme: CScheme, mode: str) -> list[Call]:
        function, arguments = scale_call(get_host_storage(ranges).array, get_host_storage(params).array, scheme)
        columns = {
            name: get_host_storage(getattr(scales, name)).array for name in ("scale", "inv_scale", "zero_point", "offset")
        }

        def find() -> int:
            status = function(*arguments)
            for name, column in columns.items():
                column[...] = get_host_storage(params).array[name]
            return status

        return [self._queued("ranges_to_params", Call(find, (), scaled_mode=mode))]
