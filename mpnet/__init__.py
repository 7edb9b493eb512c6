# SPDX-License-Identifier: MIT
"""mpnet: which layers of a detector may run in int8 or fp16, and what each choice costs."""

__version__ = "0.2.0"
