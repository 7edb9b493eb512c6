# SPDX-License-Identifier: MIT
"""The contents of a report: typed objects, and sentences about them. Nothing here opens a file."""
