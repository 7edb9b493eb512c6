# SPDX-License-Identifier: MIT
"""Matching, average precision, agreement and paired statistics."""
