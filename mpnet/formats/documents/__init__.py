# SPDX-License-Identifier: MIT
"""JSON and YAML documents: experiments, detections, predictions, ranges, and what each may hold."""
