# SPDX-License-Identifier: MIT
"""Darknet network files (.cfg): reading, checking, and writing precisions back."""
