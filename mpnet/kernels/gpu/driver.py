# SPDX-License-Identifier: MIT
"""A way to reach GPUs: what it must bring, whatever the maker's library calls it."""

from __future__ import annotations

import hashlib
import json
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Callable, Protocol, Sequence, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array
from mpnet.errors import KernelError
from mpnet.kernels.gpu.source import ProgramText

NO_FAILURE = np.iinfo(np.int32).max
"""The status of a queue whose calls have all succeeded."""
GROUP = 64
"""Work items of a group, on every device: some drivers compile a kernel for each size that they meet; common.cl has it too."""
COMPILE_SECONDS = 300.0
"""A compilation that takes longer counts as hanging."""
_Compiled = TypeVar("_Compiled")
Number = np.int32 | np.int64 | np.float32 | np.void


class KernelCache(Protocol):
    """A store of blocks of bytes by key, which may forget any of them; `mpnet.formats.files.cache.FileCache` is one."""

    def load(self, key: str) -> tuple[NDArray[np.uint8], ...] | None:
        """Return the blocks under a key, None for none."""
        ...

    def store(self, key: str, blocks: Sequence[NDArray[Any]]) -> None:
        """Keep blocks under a key."""
        ...


class Memory:
    """A piece of a device's memory, freed when nothing refers to it any more. handle: the library's own."""

    __slots__ = ("__weakref__", "handle")

    def __init__(self, handle: Any) -> None:
        self.handle = handle


@dataclass(frozen=True)
class GpuDescription:
    """A device as users see it.

    name: for `runtime.device`, such as opencl:0. title: its maker's name of it, and of the driver.
    problem: why it cannot be used, '' where nothing is known against it.
    """

    name: str
    title: str
    problem: str = ""


def compile_within(compiler: Callable[[], _Compiled], seconds: float, name: str, description: GpuDescription) -> _Compiled:
    """Return what a compiler gives. name: of the program, description: of the device, for messages.

    Raises: KernelError where it fails, or does not end in time.
    """
    compiled: list[_Compiled] = []
    failures: list[Exception] = []

    def run() -> None:
        try:
            compiled.append(compiler())
        except Exception as error:
            failures.append(error)

    # A compiler that hangs cannot be stopped, but it can be left alone.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if compiled:
        return compiled[0]
    if not failures:
        raise KernelError(
            f"{description.name}: compiling {name} did not end within {seconds:.0f} s; update the driver, or use cpu"
        )
    lines = [line for line in str(failures[0]).splitlines() if "error" in line.lower()]
    words = " ".join(" ".join(lines or [str(failures[0])]).split())[:300]
    raise KernelError(f"{description.name}, {description.title}, cannot compile {name}: {words}; update the driver, or use cpu")


class Launch(ABC):
    """A kernel with its arguments, ready to run as often as wanted, in one thread at a time."""

    @abstractmethod
    def start(self, number: int) -> None:
        """Put it into the calling thread's queue. number: of the call, for its status."""


@dataclass(frozen=True)
class Arguments:
    """The arguments of a launch, in order: memory and numbers. has_status: whether status and number of the call follow."""

    values: tuple[Memory | Number | None, ...]
    has_status: bool = field(default=False)


class Driver(ABC):
    """One device through one library.

    description: of it. identity: what decides which bits it gives and which compiled programs it takes, for keys of caches.
    channels: of one work item of a convolution. has_doubles: whether it computes in double. shares_memory: whether the items of
    a group have a memory of their own that is quicker than the device's. has_byte_products: whether it adds four products of
    bytes at once.

    Every thread has a queue of its own, whose commands run in order. Raises: KernelError where the device fails.
    """

    description: GpuDescription
    identity: dict[str, str]
    channels: int
    has_doubles: bool
    shares_memory: bool
    has_byte_products: bool

    def key_of(self, what: str, program: ProgramText) -> str:
        """Return the key of what a cache keeps of a program on this device."""
        document = json.dumps(
            [what, program.name, program.digest(self.channels, self.has_byte_products), self.identity], sort_keys=True
        )
        return hashlib.sha256(document.encode()).hexdigest()

    @abstractmethod
    def allocate(self, size_bytes: int) -> Memory:
        """Return memory of unknown content. Raises: MemoryError."""

    @abstractmethod
    def write(self, memory: Memory, start_bytes: int, array: Array) -> None:
        """Copy a C-contiguous array into memory, and wait for it."""

    @abstractmethod
    def read(self, memory: Memory, start_bytes: int, out: Array) -> None:
        """Copy memory into a C-contiguous array, once all that the thread has started has run."""

    @abstractmethod
    def copy(self, source: Memory, source_bytes: int, target: Memory, target_bytes: int, size_bytes: int) -> None:
        """Start a copy from one piece of memory to another."""

    @abstractmethod
    def compile_program(self, text: ProgramText) -> Any:
        """Return a program, compiled from its source. Raises: KernelError."""

    @abstractmethod
    def load_program(self, text: ProgramText, binary: NDArray[np.uint8]) -> Any | None:
        """Return a program that was compiled before; None where the device does not take it."""

    @abstractmethod
    def binary_of(self, program: Any) -> NDArray[np.uint8]:
        """Return a compiled program as bytes. A driver that compiles at the first launch has in them what was launched."""

    @abstractmethod
    def launch(self, program: Any, kernel: str, items: int, arguments: Arguments) -> Launch:
        """Return a kernel of a compiled program with its arguments, for so many work items."""

    @abstractmethod
    def status(self) -> int:
        """Wait until all that the thread has started has run; return its status, NO_FAILURE for none, and reset it."""
