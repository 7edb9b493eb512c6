# SPDX-License-Identifier: MIT
"""One implementation of the kernels: it makes the calls of `mpnet.kernels.calls`, and runs them at once for those who ask."""

from __future__ import annotations

from abc import abstractmethod
from typing import Callable

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array, FloatArray
from mpnet.errors import KernelError, NonFiniteError
from mpnet.kernels.call import Call
from mpnet.kernels.calls import Binder, CallMaker
from mpnet.kernels.device import HOST, Device, Storage
from mpnet.kernels.interface import ConvShape, PackedConv
from mpnet.model.precision import Precision


def _at_once(bind: Callable[..., Call | list[Call]], name: str) -> Callable[..., None]:
    """Return a method of `Kernels` that runs the calls of one of `Binder` as soon as they are made. name: for messages."""

    def run(kernels: Kernels, *arguments: object, threads: int = 1, **options: object) -> None:
        arrays: list[tuple[Array, Storage]] = []
        if kernels.device is not HOST:
            arguments = tuple(_uploaded(value, kernels.device, arrays) for value in arguments)
            options = {key: _uploaded(value, kernels.device, arrays) for key, value in options.items()}
        binder = Binder(kernels, threads)
        calls = bind(binder, *arguments, **options)
        binder.finish(at_once=True)
        for call in calls if isinstance(calls, list) else [calls]:
            kernels.run_call(call, name)
        for array, storage in arrays:
            if array.flags.writeable:
                kernels.device.download(storage, array)

    run.__doc__ = bind.__doc__
    return run


def _uploaded(value: object, device: Device, arrays: list[tuple[Array, Storage]]) -> object:
    """Return an argument with a copy on the device in place of each array; both are added to `arrays`."""
    if isinstance(value, np.ndarray):
        arrays.append((value, device.upload(value)))
        return arrays[-1][1]
    if type(value) is tuple:
        return tuple(_uploaded(item, device, arrays) for item in value)
    if type(value) is list:
        return [_uploaded(item, device, arrays) for item in value]
    return value


class Kernels(CallMaker):
    """One implementation of the kernels: an ISA level's C table, the NumPy oracle, or those of another device.

    Its methods make the calls of `Binder`'s and run them at once; engines bind calls and run them many times. `threads`
    never changes a result. Raises: KernelError for arguments that do not fit.
    name: of the level. device: where the tensors of its calls lie.
    """

    @property
    def host_kernels(self) -> Kernels:
        """Return the kernels of the CPU, which run what these do not support."""
        assert self.device is HOST
        return self

    def supports(self, function: str, precision: Precision) -> bool:
        """Return whether calls of mp_<function> can be made for tensors of this precision; of `conv`, for weights of it.

        Beside the functions of csrc/mpnet.h: `integer_conv`, a convolution that gives codes by integers alone, and
        `ranges_to_params`, which is `ranges_to_scales` here.
        """
        return True

    def refusal(self, function: str, precision: Precision) -> str:
        """Return why they do not support a function, for a line that names them; '' where they do."""
        return "" if self.supports(function, precision) else f"{self.name} has no kernel for it"

    @abstractmethod
    def precisions(self) -> tuple[str, ...]:
        """Return the names of the precisions that it computes."""

    @abstractmethod
    def pack_conv(self, shape: ConvShape, precision: Precision, weights: Array) -> PackedConv:
        """Pack the weights of a convolution.

        weights: (out, in/groups, kh, kw), float32 (int8 for codes); rounded to half here for fp16.
        """

    def adopt_packed(self, shape: ConvShape, precision: Precision, data: NDArray[np.uint8]) -> PackedConv | None:
        """Adopt weights that these kernels packed in another process, whose bytes are whole; None when they do not fit.

        data: aligned to 64; read only.
        """
        return None

    def check_status(self, status: int | None, what: str) -> None:
        """Raise what a status other than MP_OK means."""
        if status:
            raise KernelError(f"{what}: status {status}")

    def run_call(self, call: Call, what: str) -> None:
        """Run a call and wait for it. what: it is, for messages. Raises: KernelError."""
        self.check_status(call.function(*call.arguments), what)
        failed = self.device.finish()
        if failed is not None:
            self.check_status(failed.status, what)

    def value_range(self, x: Array, *, threads: int = 1) -> FloatArray:
        """Return the minimum and maximum of each image of reals, (n, 2). Raises: NonFiniteError when a value is not finite."""
        ranges = np.empty((*np.shape(x)[:1], 2), np.float32)
        try:
            self._fill_range(x, ranges, threads=threads)
        except NonFiniteError:
            raise NonFiniteError("a tensor to be quantised holds NaN or infinity") from None
        return ranges

    _fill_range = _at_once(Binder.value_range, "value_range")
    run_function = _at_once(Binder.call, "a call")
    conv = _at_once(Binder.conv, "convolution")
    quantize = _at_once(Binder.quantize, "quantize")
    dequantize = _at_once(Binder.dequantize, "dequantize")
    cast = _at_once(Binder.cast, "cast")
    maxpool = _at_once(Binder.maxpool, "maxpool")
    avgpool = _at_once(Binder.avgpool, "avgpool")
    upsample = _at_once(Binder.upsample, "upsample")
    concat = _at_once(Binder.concat, "concat")
    take_channels = _at_once(Binder.take_channels, "take_channels")
    add = _at_once(Binder.add, "add")
