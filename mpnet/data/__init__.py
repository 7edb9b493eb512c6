# SPDX-License-Identifier: MIT
"""Data sets and what is found on them: images with labels, detections, classifications."""
