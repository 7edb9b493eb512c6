# SPDX-License-Identifier: MIT
"""ONNX Runtime, on the CPU, with files in the form of its own quantiser."""

from __future__ import annotations

from dataclasses import replace

from mpnet.backends import onnxruntime

BACKEND = replace(
    onnxruntime.BACKEND, what="ONNX Runtime, most layers in int8 with one more rounding each", flavour="onnxruntime-fast"
)
