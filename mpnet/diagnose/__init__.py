# SPDX-License-Identifier: MIT
"""Diagnoses: layers that lose accuracy (`mpnet analyze`), and layers that lose an object (`mpnet explain`)."""
