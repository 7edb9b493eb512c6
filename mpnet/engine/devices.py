# SPDX-License-Identifier: MIT
"""The kernels that an experiment or an option asks for: a table of the CPU, or a GPU, which must have shown its bits."""

from __future__ import annotations

import functools
import os
import re
import warnings
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mpnet.config.backends import CPU, GPU, REFERENCE
from mpnet.errors import ConfigError, FallbackWarning, KernelError
from mpnet.formats.files.cache import open_cache
from mpnet.kernels.implementation import Kernels
from mpnet.kernels.isa import kernels
from mpnet.messages import shown

if TYPE_CHECKING:
    from mpnet.config.experiment import RuntimeSection
    from mpnet.kernels.gpu.driver import Driver, GpuDescription

AUTO = "auto"
DEVICES = (AUTO, CPU, "opencl", "opencl:N", "cuda", "cuda:N")
"""What `runtime.device` may say. auto is the CPU, or what DEVICE_VARIABLE says: no other device has been shown to be faster."""
DEVICE_VARIABLE = "MPNET_DEVICE"
"""Names the device of `auto`: workers of a cluster, each of which may have another, are told by it."""
SCALAR = "scalar"
"""The table that is the reference."""
_ISA_ORIGIN = "runtime.isa (or --isa)"
_DEVICE_ORIGIN = "runtime.device (or --device)"
_GPU = re.compile(r"(opencl|cuda)(:[0-9]{1,3})?")


def open_kernels(
    isa: str | None = AUTO, device: str | None = AUTO, origin: str = _DEVICE_ORIGIN, falls_back: bool = False
) -> Kernels:
    """Return the kernels of a device; of the CPU those of a table, on which runs as well what a GPU does not support.

    isa: a table, or a device as `Kernels.name` has it. None counts as auto. origin: where the device is from, for messages.
    falls_back: whether the CPU runs what a GPU gives other bits for or cannot compile; such operations are refused otherwise.
    Raises: ConfigError for a device that is unknown or lacks a package; KernelError for a table or a device that is not there
    or that gives other bits.
    """
    if isa is not None and _GPU.fullmatch(isa):
        isa, device = AUTO, isa
    table = kernels(None if isa in (None, AUTO) else isa, _ISA_ORIGIN)
    if device is None or device == AUTO:
        device, origin = os.environ.get(DEVICE_VARIABLE, CPU), DEVICE_VARIABLE
    if device == CPU:
        return table
    _check_device(device, origin)
    return _open_gpu(_open_driver(device, origin), table.name, falls_back)


def open_runtime(runtime: RuntimeSection) -> Kernels:
    """Return the kernels that the section asks for, by its backends where it has any.

    A GPU that is preferred and cannot be used leaves its operations to what comes behind it, with a FallbackWarning that says
    why. Raises: as `open_kernels`; ConfigError for keys that contradict each other.
    """
    names = runtime.backends
    if not names:
        return open_kernels(runtime.isa, runtime.device)
    if len(set(names)) != len(names):
        raise ConfigError(f"runtime.backends: {', '.join(names)}; name each once, the preferred one first")
    fallback = next((name for name in names if name != GPU), REFERENCE)
    if fallback == REFERENCE and runtime.isa not in (AUTO, SCALAR):
        raise ConfigError(
            f"runtime.backends: {REFERENCE} is the table {SCALAR}, not runtime.isa {runtime.isa}; leave that out, or name {CPU}"
        )
    isa = SCALAR if fallback == REFERENCE else runtime.isa
    if runtime.device not in (AUTO, CPU):
        _check_device(runtime.device, _DEVICE_ORIGIN)
        if names[0] != GPU:
            raise ConfigError(
                f"runtime.backends: begins with {names[0]}, but runtime.device is {runtime.device}; put {GPU} first"
            )
    if names[0] != GPU or runtime.device == CPU:
        return open_kernels(isa, CPU)
    device = _first_gpu() if runtime.device == AUTO else runtime.device
    try:
        return open_kernels(isa, device, "runtime.backends", falls_back=True)
    except (ConfigError, KernelError) as error:
        host = open_kernels(isa, CPU)
        line = f"{error}; all operations fall back to {fallback} ({host.name})"
        warnings.warn(line, FallbackWarning, stacklevel=2)
        return host


def _first_gpu() -> str:
    """Return the name of the GPU that `gpu` is: of OpenCL, or of CUDA where there is no device of OpenCL's."""
    names = [gpu.name for gpu in list_gpus()]
    return names[0] if names and names[0].startswith("cuda") else "opencl"


def _check_device(device: str, origin: str) -> None:
    if not _GPU.fullmatch(device):
        raise ConfigError(f"{origin}: {shown(device)} is unknown; use {', '.join(DEVICES[:-1])} or {DEVICES[-1]}")


@functools.cache
def _open_gpu(driver: Driver, isa: str, falls_back: bool) -> Kernels:
    from mpnet.kernels.gpu.gpu_kernels import GpuKernels
    from mpnet.kernels.gpu.known_cases import program_checker

    cache = open_cache()
    return GpuKernels(driver, kernels(isa), cache, program_checker(cache), falls_back)


def _open_driver(device: str, origin: str) -> Driver:
    if device.startswith("cuda"):
        from mpnet.kernels.gpu import cuda

        return cuda.open_driver(device, origin)
    from mpnet.kernels.gpu import opencl

    return opencl.open_driver(device, origin)


def list_gpus() -> list[GpuDescription]:
    """Return the GPUs that can be named; none of a package that is not installed."""
    gpus: list[GpuDescription] = []
    if find_spec("pyopencl") is not None:
        from mpnet.kernels.gpu import opencl

        with suppress(ConfigError):
            gpus += opencl.describe(opencl.load_library("mpnet info"))
    if find_spec("cuda") is not None:
        from mpnet.kernels.gpu import cuda

        with suppress(ConfigError):
            gpus += cuda.describe(cuda.load_library("mpnet info"))
    return gpus
