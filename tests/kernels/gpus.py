# SPDX-License-Identifier: MIT
"""The OpenCL device that tests run on, which PoCL makes of the CPU (Debian: pocl-opencl-icd), and its kernels.

MPNET_TEST_GPU=0 leaves them out.
"""

from __future__ import annotations

import functools
import os
from importlib.util import find_spec

import pytest

from mpnet.errors import MpnetError
from mpnet.kernels.gpu.driver import Driver
from mpnet.kernels.gpu.gpu_kernels import GpuKernels
from mpnet.kernels.gpu.opencl import open_driver
from mpnet.kernels.isa import kernels


@functools.cache
def _driver() -> Driver | str:
    """Return a driver, or why there is none."""
    if os.environ.get("MPNET_TEST_GPU") == "0":
        return "MPNET_TEST_GPU=0"
    if find_spec("pyopencl") is None:
        return "pip install pyopencl"
    try:
        return open_driver("opencl", "test")
    except MpnetError as error:
        return str(error)


def gpu_driver() -> Driver:
    """Return the driver of an OpenCL device; the test is skipped, aloud, without one."""
    driver = _driver()
    if isinstance(driver, str):
        pytest.skip(f"SKIPPED WITHOUT AN OPENCL DEVICE: {driver}")
    return driver


@functools.cache
def _kernels() -> GpuKernels:
    return GpuKernels(gpu_driver(), kernels(), None, lambda *_: None)


def gpu_kernels() -> GpuKernels:
    """Return kernels of that device, which have not been asked for their bits: the tests ask. Skips as `gpu_driver`."""
    gpu_driver()
    return _kernels()


def usable_gpu_kernels() -> list[GpuKernels]:
    """Return the same in a list, which is empty without a device."""
    return [] if isinstance(_driver(), str) else [_kernels()]
