# SPDX-License-Identifier: MIT
"""The embedded demo: a seeded generator of labelled scenes and a small trained YOLOv3-tiny."""
