# SPDX-License-Identifier: MIT
"""GPUs by OpenCL, through the package pyopencl and the drivers that are installed."""

from __future__ import annotations

import functools
import os
import threading
import warnings
from typing import Any, Callable, TypeVar

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
from mpnet.packages import require, requirements

OPTIONS = ("-cl-std=CL1.2", "-cl-fp32-correctly-rounded-divide-sqrt")
"""Of every build: nothing that a compiler may choose, subnormals stay, and division is rounded correctly."""
PREFIX = "opencl"
_Result = TypeVar("_Result")


def load_library(who: str) -> Any:
    """Return the module pyopencl. who: asks for it, for the message. Raises: ConfigError where it cannot be imported."""
    require(who, requirements("pyopencl"), "gpu")
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")  # compiled programs are kept in mpnet's own cache
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pyopencl
    except ImportError as error:
        raise ConfigError(f"{who}: pyopencl cannot be imported ({error}); install it again: pip install pyopencl") from None
    # Each call has a kernel object of its own, of whose equal names pyopencl's generated code tells whoever listens.
    warnings.filterwarnings("ignore", message="Overwriting existing generated code")
    return pyopencl


def list_devices(library: Any) -> list[Any]:
    """Return the devices of all OpenCL drivers, in their order; none where no driver is installed."""
    devices: list[Any] = []
    try:
        platforms = library.get_platforms()
    except library.Error:
        return []
    for platform in platforms:
        try:
            devices += platform.get_devices()
        except library.Error:  # a driver without a device
            continue
    return devices


def describe(library: Any) -> list[GpuDescription]:
    """Return what there is."""
    return [
        GpuDescription(f"{PREFIX}:{number}", _title(device), _problem(library, device))
        for number, device in enumerate(list_devices(library))
    ]


def _title(device: Any) -> str:
    return f"{device.name.strip()} ({device.platform.name.strip()}, driver {device.driver_version.strip()})"


def _problem(library: Any, device: Any) -> str:
    """Return what a device says of itself that makes its bits others, '' for nothing."""
    flags, config = library.device_fp_config, device.single_fp_config
    for flag, words in (
        (flags.DENORM, "flushes subnormal numbers to zero"),
        (flags.FMA, "has no fused multiply-add"),
        (flags.ROUND_TO_NEAREST, "does not round to nearest"),
        (flags.INF_NAN, "has no infinities"),
        (flags.CORRECTLY_ROUNDED_DIVIDE_SQRT, "does not round divisions correctly"),
    ):
        if not config & flag:
            return words
    if not device.available:
        return "is not available"
    if not device.endian_little:
        return "is not little-endian"
    return "" if device.compiler_available else "has no compiler"


def open_driver(name: str, origin: str) -> OpenCLDriver:
    """Return the driver of the device that opencl or opencl:N names. origin: of the name, for messages.

    opencl alone is the first GPU, or the first device where there is none. Raises: ConfigError, KernelError.
    """
    library = load_library(f"{origin} {name}")
    devices = list_devices(library)
    if not devices:
        raise KernelError(
            f"{origin}: {name} needs an OpenCL driver and there is none; install the GPU's, or pocl-opencl-icd (Debian) to "
            "try it on the CPU"
        )
    _, colon, digits = name.partition(":")
    if not colon:
        gpus = [number for number, device in enumerate(devices) if device.type & library.device_type.GPU]
        number = gpus[0] if gpus else 0
    else:
        number = int(digits)
    if number >= len(devices):
        there = ", ".join(f"{PREFIX}:{i} ({device.name.strip()})" for i, device in enumerate(devices))
        raise KernelError(f"{origin}: there is no device {name}; there are {there}")
    problem = _problem(library, devices[number])
    if problem:
        raise KernelError(
            f"{origin}: {name}, {_title(devices[number])}, {problem}, so its results would have other bits; use cpu"
        )
    return _driver_of(library, devices[number], f"{PREFIX}:{number}")


@functools.cache
def _driver_of(library: Any, device: Any, name: str) -> OpenCLDriver:
    """Return the one driver of a device in this process, however it was named."""
    return OpenCLDriver(library, device, name)


class OpenCLDriver(Driver):
    """A device of an OpenCL driver."""

    def __init__(self, library: Any, device: Any, name: str) -> None:
        self.description = GpuDescription(name, _title(device))
        self._library, self._device = library, device
        is_cpu = bool(device.type & library.device_type.CPU)
        # Vectors of a CPU hold 16 channels; threads of a GPU read four weights at once.
        self.channels = 16 if is_cpu else 4
        self.shares_memory = not is_cpu
        self.has_byte_products = False  # OpenCL C 1.2 has no word for them
        self.has_doubles = bool(device.double_fp_config & library.device_fp_config.FMA)
        self.identity = {
            "device": device.name,
            "vendor": device.vendor,
            "version": device.version,
            "driver": device.driver_version,
            "platform": f"{device.platform.name} {device.platform.version}",
            "options": " ".join(OPTIONS),
        }
        self._context = self._guarded(lambda: library.Context([device]))
        self._queues = _Queues(self)

    def _guarded(self, action: Callable[[], _Result]) -> _Result:
        """Return what an action gives. Raises: MemoryError, KernelError with what the device says."""
        try:
            return action()
        except self._library.MemoryError as error:
            raise MemoryError(f"{self.description.name}: {_reason(error)}") from None
        except self._library.Error as error:
            text = f"{self.description.name}, {self.description.title}, failed ({_reason(error)}); use another device, or cpu"
            raise KernelError(text) from None

    def allocate(self, size_bytes: int) -> Memory:
        """Implement `Driver.allocate`."""
        if size_bytes > self._device.max_mem_alloc_size:
            raise MemoryError(f"{self.description.name} gives at most {self._device.max_mem_alloc_size} bytes at once")
        flags = self._library.mem_flags.READ_WRITE
        return Memory(self._guarded(lambda: self._library.Buffer(self._context, flags, size_bytes)))

    def write(self, memory: Memory, start_bytes: int, array: Array) -> None:
        """Implement `Driver.write`."""
        queue, copy = self._queues.own.queue, self._library.enqueue_copy
        self._guarded(lambda: copy(queue, memory.handle, array, dst_offset=start_bytes, is_blocking=True))

    def read(self, memory: Memory, start_bytes: int, out: Array) -> None:
        """Implement `Driver.read`."""
        queue, copy = self._queues.own.queue, self._library.enqueue_copy
        self._guarded(lambda: copy(queue, out, memory.handle, src_offset=start_bytes, is_blocking=True))

    def copy(self, source: Memory, source_bytes: int, target: Memory, target_bytes: int, size_bytes: int) -> None:
        """Implement `Driver.copy`."""
        queue, copy = self._queues.own.queue, self._library.enqueue_copy
        places = {"src_offset": source_bytes, "dst_offset": target_bytes, "byte_count": size_bytes}
        self._guarded(lambda: copy(queue, target.handle, source.handle, **places))

    def compile_program(self, text: ProgramText) -> Any:
        """Implement `Driver.compile_program`."""
        return self._built(self._library.Program(self._context, text.text(self.channels, self.has_byte_products)), text)

    def load_program(self, text: ProgramText, binary: NDArray[np.uint8]) -> Any | None:
        """Implement `Driver.load_program`."""
        try:
            return self._built(self._library.Program(self._context, [self._device], [binary.tobytes()]), text)
        except (KernelError, self._library.Error):  # another driver's, or damaged
            return None

    def binary_of(self, program: Any) -> NDArray[np.uint8]:
        """Implement `Driver.binary_of`."""
        return np.frombuffer(self._guarded(lambda: program.binaries)[0], np.uint8)

    def _built(self, program: Any, text: ProgramText) -> Any:
        """Build a program within COMPILE_SECONDS. Raises: KernelError."""

        def build() -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the compiler: its remarks
                return program.build(list(OPTIONS))

        return compile_within(build, COMPILE_SECONDS, text.name, self.description)

    def launch(self, program: Any, kernel: str, items: int, arguments: Arguments) -> Launch:
        """Implement `Driver.launch`."""
        # A kernel object of its own for each call, whose arguments stay.
        made = self._guarded(lambda: self._library.Kernel(program, f"mp_{kernel}"))
        for position, value in enumerate(arguments.values):
            self._set_argument(made, position, value.handle if isinstance(value, Memory) else value)
        return _OpenCLLaunch(self, made, items, len(arguments.values) if arguments.has_status else None)

    def _set_argument(self, kernel: Any, position: int, value: Any) -> None:
        self._guarded(lambda: kernel.set_arg(position, value))

    def enqueue(self, kernel: Any, items: int, status_position: int | None, number: int) -> None:
        """Start a kernel in the calling thread's queue."""
        own = self._queues.own
        if status_position is not None:
            self._set_argument(kernel, status_position, own.status)
            self._set_argument(kernel, status_position + 1, np.int32(number))
        size = ((items + GROUP - 1) // GROUP * GROUP,)
        self._guarded(lambda: self._library.enqueue_nd_range_kernel(own.queue, kernel, size, (GROUP,)))

    def status(self) -> int:
        """Implement `Driver.status`."""
        own, status = self._queues.own, np.empty(1, np.int32)
        self._guarded(lambda: self._library.enqueue_copy(own.queue, status, own.status, is_blocking=True))
        if status[0] != NO_FAILURE:
            own.reset()
        return int(status[0])

    def new_queue(self) -> Any:
        """Return a queue whose commands run in order."""
        return self._guarded(lambda: self._library.CommandQueue(self._context, self._device))

    def new_status(self, queue: Any) -> Any:
        """Return the memory of a status without a failure."""
        memory = self.allocate(4).handle
        self._guarded(lambda: self._library.enqueue_copy(queue, memory, np.array([NO_FAILURE], np.int32), is_blocking=True))
        return memory


class _OpenCLLaunch(Launch):
    def __init__(self, driver: OpenCLDriver, kernel: Any, items: int, status_position: int | None) -> None:
        self._driver, self._kernel, self._items, self._status_position = driver, kernel, items, status_position

    def start(self, number: int) -> None:
        self._driver.enqueue(self._kernel, self._items, self._status_position, number)


class _Queues(threading.local):
    """The queue of each thread."""

    def __init__(self, driver: OpenCLDriver) -> None:
        self._driver = driver
        self._own: _Queue | None = None

    @property
    def own(self) -> _Queue:
        """Return the calling thread's."""
        if self._own is None:
            self._own = _Queue(self._driver)
        return self._own


class _Queue:
    def __init__(self, driver: OpenCLDriver) -> None:
        self._driver = driver
        self.queue = driver.new_queue()
        self.reset()

    def reset(self) -> None:
        """Forget a failure."""
        self.status = self._driver.new_status(self.queue)


def _reason(error: Exception) -> str:
    """Return what OpenCL says, on one line."""
    return " ".join(str(error).split())[:200]
