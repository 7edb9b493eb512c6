# SPDX-License-Identifier: MIT
"""Readers and writers: bytes to model, data and config and back, each with limits and one-line errors."""
