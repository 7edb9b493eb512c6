# SPDX-License-Identifier: MIT
"""Kernels of GPUs: one source for all of them, and what runs it. Nothing here is imported unless a GPU is asked for.

`common.cl`, `convolution.cl`, `operations.cl` and `doubles.cl` are the kernels; `source.py` makes programs of them. `driver.py`
is what a way to reach GPUs must bring, `opencl.py` brings it. `memory.py` has the tensors, `gpu_kernels.py` the calls,
`packed.py` the weights, and `known_cases.py` the bits that a device has to show.
"""
