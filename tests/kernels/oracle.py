# SPDX-License-Identifier: MIT
"""The NumPy oracle, which under emulation and sanitizers takes most of the time of the kernels' tests, though NumPy is not what
they look at. With $MPNET_ORACLE, a folder, what it gave for the same arguments is kept there and read back, whichever process
and CPU asked first: so emulated kernels are held against results of a CPU of another make.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from mpnet.kernels import reference, reference_math, reference_operations, rounding
from mpnet.kernels.call import Call
from mpnet.kernels.device import Storage
from mpnet.kernels.interface import PackedConv
from mpnet.kernels.reference import ReferenceKernels
from mpnet.model import reals

RESULTS = ("out", "ranges")
WRITE_A_PART = ("copy_channels",)
"""Functions that leave what else stands in their result, which is no argument: they are run each time."""


def oracle() -> ReferenceKernels:
    """Return the oracle itself, unless MPNET_ORACLE names a folder."""
    folder = os.environ.get("MPNET_ORACLE")
    return RecordedKernels(Path(folder)) if folder else ReferenceKernels()


def _name_arguments(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Yield every argument that decides what a function of the oracle gives, and where it puts that."""
    names = [*inspect.signature(function).parameters]
    for position, value in enumerate(arguments):
        name = names[min(position, len(names) - 1)]  # the last one takes all that are left
        if name == "_":
            return  # nothing behind it decides, such as the threads
        if isinstance(value, PackedConv):
            yield from (("shape", value.shape), ("precision", value.precision.name), ("weights", value.data))
        elif isinstance(value, dict):
            for key in sorted(value):
                yield from _flatten(key, value[key])
        else:
            yield from _flatten(name, value)


def _flatten(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a tuple's elements one by one: arrays in it count by their values, of which a text would leave out most."""
    if isinstance(value, tuple):
        for number, element in enumerate(value):
            yield from _flatten(f"{name}.{number}", element)
    else:
        yield name, value


class RecordedKernels(ReferenceKernels):
    """The oracle with a memory on disk. What its code or any argument changes is another record; errors are none."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        sources = (inspect.getsource(module) for module in (reference, reference_math, reference_operations, rounding, reals))
        self._folder, self._version = folder, hashlib.sha256("".join(sources).encode()).digest()

    def call(self, function: str, x: Storage | NDArray[Any], *arguments: Any) -> Call:
        """See Kernels.call."""
        return self._recorded(super().call(function, x, *arguments))

    def conv_call(self, packed: PackedConv, x: Storage | NDArray[Any], fields: dict[str, Any]) -> Call:
        """See Kernels.conv_call."""
        return self._recorded(super().conv_call(packed, x, fields))

    def _recorded(self, call: Call) -> Call:
        return replace(call, function=partial(self._once, call.function))

    def _once(self, function: Callable[..., Any], *arguments: Any) -> None:
        if function.__name__ in WRITE_A_PART:
            function(*arguments)
            return
        key, results = hashlib.sha256(self._version + function.__name__.encode()), []
        for name, value in _name_arguments(function, arguments):
            if isinstance(value, np.ndarray):
                key.update(f"{name} {value.dtype} {value.shape}".encode())
                results += [value] if name in RESULTS else []
                key.update(b"" if name in RESULTS else value.tobytes())
            else:
                key.update(f"{name} {value}".encode())
        path = self._folder / key.hexdigest()
        if not path.exists():
            function(*arguments)
            unfinished = path.with_suffix(f".{os.getpid()}")
            unfinished.write_bytes(b"".join(result.tobytes() for result in results))
            unfinished.replace(path)
            return
        offset, record = 0, path.read_bytes()
        for result in results:
            result[...] = np.frombuffer(record, result.dtype, result.size, offset).reshape(result.shape)
            offset += result.nbytes
