# SPDX-License-Identifier: MIT
"""Walk through a space: strategies choose what to evaluate next, the loop has it evaluated and stored."""
