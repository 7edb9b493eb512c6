# SPDX-License-Identifier: MIT
"""Limits that commands, experiment files and kernels share."""

MAX_THREADS = 1024
"""Threads of a process, and worker processes of a sweep. csrc/mprun has the same limit."""
