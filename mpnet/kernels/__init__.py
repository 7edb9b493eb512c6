# SPDX-License-Identifier: MIT
"""Numeric operations: the C tables (native), the NumPy oracle (reference) and how one is chosen (isa)."""
