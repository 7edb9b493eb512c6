# SPDX-License-Identifier: MIT
"""How fast a network is on this machine: passes, steps, tables of a board's latency."""
