# SPDX-License-Identifier: MIT
"""NVIDIA's GPUs by CUDA, through the packages cuda-bindings and nvidia-cuda-nvrtc and NVIDIA's driver.

It was written without such a GPU: NVRTC compiles its programs in tests, and no kernel of it has run on a card.
"""

from __future__ import annotations

import functools
import threading
import weakref
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array
from mpnet.errors import ConfigError, KernelError
from mpnet.kernels.gpu.driver import (
    COMPILE_SECONDS,
    GROUP,
    NO_FAILURE,
    Arguments,
    Driver,
    GpuDescription,
    Launch,
    Memory,
    compile_within,
)
from mpnet.kernels.gpu.source import ProgramText

OPTIONS = ("--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")
"""Of every build: nothing is contracted, subnormals stay, quotients and roots are rounded correctly."""
PREFIX = "cuda"
LEAST_CAPABILITY = (6, 1)
"""From this on a GPU multiplies bytes four at a time."""


def load_library(who: str) -> Any:
    """Return the modules `driver` and `nvrtc` of cuda.bindings. who: asks for them, for the message. Raises: ConfigError."""
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        raise ConfigError(f"{who}: needs cuda-bindings and nvidia-cuda-nvrtc; pip install --upgrade 'mpnet[cuda]'")
    try:
        from cuda import bindings
        from cuda.bindings import driver, nvrtc
    except ImportError as error:
        raise ConfigError(f"{who}: cuda.bindings cannot be imported ({error}); pip install --upgrade 'mpnet[cuda]'") from None
    assert (driver, nvrtc) == (bindings.driver, bindings.nvrtc)
    return bindings


def list_devices(library: Any) -> list[Any]:
    """Return the devices of NVIDIA's driver; none where there is no driver."""
    driver = library.driver
    try:
        if driver.cuInit(0)[0] != driver.CUresult.CUDA_SUCCESS:
            return []
        error, count = driver.cuDeviceGetCount()
    except Exception:  # without NVIDIA's driver the package raises one of its own, by version another
        return []
    return [driver.cuDeviceGet(number)[1] for number in range(count)] if error == driver.CUresult.CUDA_SUCCESS else []


def describe(library: Any) -> list[GpuDescription]:
    """Return what there is."""
    devices = list_devices(library)
    return [GpuDescription(f"{PREFIX}:{number}", _title(library, device)) for number, device in enumerate(devices)]


def _title(library: Any, device: Any) -> str:
    name = library.driver.cuDeviceGetName(100, device)[1].split(b"\0")[0].decode(errors="replace")
    version = library.driver.cuDriverGetVersion()[1]
    major, minor = capability_of(library, device)
    return f"{name.strip()} (CUDA {version // 1000}.{version % 1000 // 10}, capability {major}.{minor})"


def capability_of(library: Any, device: Any) -> tuple[int, int]:
    """Return a device's compute capability."""
    kinds = library.driver.CUdevice_attribute
    major, minor = (
        library.driver.cuDeviceGetAttribute(kind, device)[1]
        for kind in (kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
    )
    return int(major), int(minor)


def compile_text(library: Any, text: str, capability: tuple[int, int]) -> bytes:
    """Return the code of a source for GPUs of a compute capability. Raises: ValueError with the compiler's log."""
    nvrtc = library.nvrtc
    error, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], [])
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise ValueError(f"error: {error}")
    options = [option.encode() for option in (f"--gpu-architecture=sm_{capability[0]}{capability[1]}", *OPTIONS)]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * nvrtc.nvrtcGetProgramLogSize(program)[1]
        nvrtc.nvrtcGetProgramLog(program, log)
        raise ValueError(log.decode(errors="replace") or f"error: {error}")
    code: bytes = b" " * nvrtc.nvrtcGetCUBINSize(program)[1]
    nvrtc.nvrtcGetCUBIN(program, code)
    return code


def parameters_of(arguments: Arguments) -> list[Array]:
    """Return the parameters of a kernel, one array each, without status and number: pointers, numbers and structures."""
    parameters: list[Array] = []
    for value in arguments.values:
        if value is None or isinstance(value, Memory):
            parameters.append(np.array([0 if value is None else int(value.handle)], np.uint64))
        else:
            parameters.append(np.array([value], value.dtype))
    return parameters


def open_driver(name: str, origin: str) -> CudaDriver:
    """Return the driver of the device that cuda or cuda:N names; cuda alone is the first. origin: of the name, for messages.

    Raises: ConfigError, KernelError.
    """
    library = load_library(f"{origin} {name}")
    devices = list_devices(library)
    if not devices:
        raise KernelError(f"{origin}: {name} needs NVIDIA's driver and one of its GPUs, and there is none; use opencl or cpu")
    number = int(name.partition(":")[2] or 0)
    if number >= len(devices):
        there = ", ".join(gpu.name for gpu in describe(library))
        raise KernelError(f"{origin}: there is no device {name}; there are {there}")
    return _driver_of(library, number)


@functools.cache
def _driver_of(library: Any, number: int) -> CudaDriver:
    """Return the one driver of a device in this process, however it was named."""
    return CudaDriver(library, list_devices(library)[number], f"{PREFIX}:{number}")


class CudaDriver(Driver):
    """A device of NVIDIA's driver."""

    def __init__(self, library: Any, device: Any, name: str) -> None:
        self.description = GpuDescription(name, _title(library, device))
        self._library, self._driver = library, library.driver
        self._capability = capability_of(library, device)
        self.channels = 4
        self.has_doubles = self.shares_memory = True
        self.has_byte_products = self._capability >= LEAST_CAPABILITY
        major, minor = library.nvrtc.nvrtcVersion()[1:]
        self.identity = {"device": self.description.title, "compiler": f"NVRTC {major}.{minor}", "options": " ".join(OPTIONS)}
        self._context = self._call("cuDevicePrimaryCtxRetain", device)
        self._queues = _Queues(self)

    def _call(self, function: str, *arguments: Any) -> Any:
        """Call the driver and return what it gives. Raises: MemoryError, KernelError."""
        try:
            error, *results = getattr(self._driver, function)(*arguments)
        except RuntimeError as failure:
            raise self._failure(" ".join(str(failure).split())[:200]) from None
        if error == self._driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise MemoryError(f"{self.description.name}: {function} found no memory")
        if error != self._driver.CUresult.CUDA_SUCCESS:
            raise self._failure(f"{function}: {getattr(error, 'name', error)}")
        return results[0] if results else None

    def _failure(self, reason: str) -> KernelError:
        description = self.description
        return KernelError(f"{description.name}, {description.title}, failed ({reason}); use another device, or cpu")

    @property
    def _stream(self) -> Any:
        return self._queues.own.stream

    def allocate(self, size_bytes: int) -> Memory:
        """Implement `Driver.allocate`."""
        self._queues.own  # noqa: B018 - makes the context the thread's own
        pointer = _Pointer(int(self._call("cuMemAlloc", size_bytes)))
        # It waits for all kernels, so that none loses what it reads.
        weakref.finalize(pointer, self._free, pointer.address)
        return Memory(pointer)

    def _free(self, address: int) -> None:
        try:
            self._queues.own  # noqa: B018 - it may be another thread that lets go
            self._call("cuMemFree", address)
        except KernelError:  # a device that is gone keeps nothing
            pass

    def write(self, memory: Memory, start_bytes: int, array: Array) -> None:
        """Implement `Driver.write`."""
        stream = self._stream
        self._call("cuMemcpyHtoDAsync", int(memory.handle) + start_bytes, array.ctypes.data, array.nbytes, stream)
        self._call("cuStreamSynchronize", stream)

    def read(self, memory: Memory, start_bytes: int, out: Array) -> None:
        """Implement `Driver.read`."""
        stream = self._stream
        self._call("cuMemcpyDtoHAsync", out.ctypes.data, int(memory.handle) + start_bytes, out.nbytes, stream)
        self._call("cuStreamSynchronize", stream)

    def copy(self, source: Memory, source_bytes: int, target: Memory, target_bytes: int, size_bytes: int) -> None:
        """Implement `Driver.copy`."""
        target_address, source_address = int(target.handle) + target_bytes, int(source.handle) + source_bytes
        self._call("cuMemcpyDtoDAsync", target_address, source_address, size_bytes, self._stream)

    def compile_program(self, text: ProgramText) -> Any:
        """Implement `Driver.compile_program`."""

        def compiled() -> bytes:
            source = text.text(self.channels, self.has_byte_products)
            return compile_text(self._library, source, self._capability)

        return self._loaded(compile_within(compiled, COMPILE_SECONDS, text.name, self.description))

    def load_program(self, text: ProgramText, binary: NDArray[np.uint8]) -> Any | None:
        """Implement `Driver.load_program`."""
        try:
            return self._loaded(binary.tobytes())
        except KernelError:  # another GPU's, or damaged
            return None

    def _loaded(self, code: bytes) -> _Module:
        self._queues.own  # noqa: B018 - makes the context the thread's own
        return _Module(code, self._call("cuModuleLoadData", code))

    def binary_of(self, program: Any) -> NDArray[np.uint8]:
        """Implement `Driver.binary_of`."""
        return np.frombuffer(program.code, np.uint8)

    def launch(self, program: Any, kernel: str, items: int, arguments: Arguments) -> Launch:
        """Implement `Driver.launch`."""
        self._queues.own  # noqa: B018 - makes the context the thread's own
        function = self._call("cuModuleGetFunction", program.handle, f"mp_{kernel}".encode())
        return _CudaLaunch(self, function, items, arguments)

    def enqueue(self, function: Any, items: int, parameters: list[Array], has_status: bool, number: int) -> None:
        """Start a kernel in the calling thread's stream."""
        own = self._queues.own
        if has_status:
            parameters = [*parameters, np.array([int(own.status.handle)], np.uint64), np.array([number], np.int32)]
        # The driver reads the values before it returns.
        addresses = np.array([parameter.ctypes.data for parameter in parameters], np.uint64)
        blocks = (items + GROUP - 1) // GROUP
        self._call("cuLaunchKernel", function, blocks, 1, 1, GROUP, 1, 1, 0, own.stream, addresses.ctypes.data, 0)

    def status(self) -> int:
        """Implement `Driver.status`."""
        own, status = self._queues.own, np.empty(1, np.int32)
        self.read(own.status, 0, status)
        if status[0] != NO_FAILURE:
            self.write(own.status, 0, np.array([NO_FAILURE], np.int32))
        return int(status[0])

    def enter(self) -> Any:
        """Make the device's context the calling thread's and return a stream of its own."""
        self._call("cuCtxSetCurrent", self._context)
        return self._call("cuStreamCreate", int(self._driver.CUstream_flags.CU_STREAM_NON_BLOCKING))


class _Pointer:
    """An address of the device's memory, which is freed when nothing refers to it any more."""

    __slots__ = ("__weakref__", "address")

    def __init__(self, address: int) -> None:
        self.address = address

    def __int__(self) -> int:
        return self.address


class _Module:
    """A program: its code, and what the driver made of it."""

    def __init__(self, code: bytes, handle: Any) -> None:
        self.code, self.handle = code, handle


class _CudaLaunch(Launch):
    def __init__(self, driver: CudaDriver, function: Any, items: int, arguments: Arguments) -> None:
        self._driver, self._function, self._items = driver, function, items
        self._parameters, self._has_status = parameters_of(arguments), arguments.has_status
        self._kept = arguments  # whose memory the addresses are of

    def start(self, number: int) -> None:
        self._driver.enqueue(self._function, self._items, self._parameters, self._has_status, number)


class _Queues(threading.local):
    """The stream and the status of each thread."""

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self._own: _Queue | None = None

    @property
    def own(self) -> _Queue:
        """Return the calling thread's."""
        if self._own is None:
            self._own = _Queue(self._driver.enter())
            self._own.status = self._driver.allocate(4)
            self._driver.write(self._own.status, 0, np.array([NO_FAILURE], np.int32))
        return self._own


class _Queue:
    status: Memory

    def __init__(self, stream: Any) -> None:
        self.stream = stream
