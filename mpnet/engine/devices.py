# SPDX-License-Identifier: MIT
"""The kernels that an experiment or an option asks for: a table of the CPU, or a GPU, which must have shown its bits."""

from __future__ import annotations

import functools
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mpnet.errors import ConfigError
from mpnet.formats.files.cache import open_cache
from mpnet.kernels.implementation import Kernels
from mpnet.kernels.isa import kernels
from mpnet.messages import shown

if TYPE_CHECKING:
    from mpnet.kernels.gpu.driver import GpuDescription

AUTO, CPU = "auto", "cpu"
DEVICES = (AUTO, CPU, "opencl", "opencl:N")
"""What `runtime.device` may say. auto is the CPU: no other device has been shown to be faster."""
_GPU = re.compile(r"opencl(:[0-9]{1,3})?")


def open_kernels(isa: str | None = AUTO, device: str | None = AUTO, origin: str = "runtime.device (or --device)") -> Kernels:
    """Return the kernels of a device; of the CPU those of a table, on which runs as well what a GPU does not support.

    isa: a table, or a device as `Kernels.name` has it. None counts as auto. origin: where the device is from, for messages.
    Raises: ConfigError for a device that is unknown or lacks a package; KernelError for a table or a device that is not there
    or that gives other bits.
    """
    if isa is not None and _GPU.fullmatch(isa):
        isa, device = AUTO, isa
    table = kernels(None if isa in (None, AUTO) else isa, "runtime.isa (or --isa)")
    if device is None or device in (AUTO, CPU):
        return table
    if not _GPU.fullmatch(device):
        raise ConfigError(f"{origin}: {shown(device)} is unknown; use {', '.join(DEVICES[:-1])} or {DEVICES[-1]}")
    return _open_gpu(device, table.name, origin)


@functools.cache
def _open_gpu(device: str, isa: str, origin: str) -> Kernels:
    from mpnet.kernels.gpu.gpu_kernels import GpuKernels
    from mpnet.kernels.gpu.known_cases import program_checker
    from mpnet.kernels.gpu.opencl import open_driver

    cache = open_cache()
    return GpuKernels(open_driver(device, origin), kernels(isa), cache, program_checker(cache))


def list_gpus() -> list[GpuDescription]:
    """Return the GPUs that can be named; none where pyopencl is not installed."""
    if find_spec("pyopencl") is None:
        return []
    from mpnet.kernels.gpu.opencl import describe, load_library

    try:
        return describe(load_library("mpnet info"))
    except ConfigError:
        return []
