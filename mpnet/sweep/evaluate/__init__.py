# SPDX-License-Identifier: MIT
"""Evaluate configurations exactly: layers that configurations share run once, spread over worker processes."""
