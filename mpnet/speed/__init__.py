# SPDX-License-Identifier: MIT
"""The speed of a network on this machine: passes, steps, tables of a board's latency."""
