# SPDX-License-Identifier: MIT
"""ONNX Runtime, on the CPU, with files in the form of its own quantiser."""

from __future__ import annotations

from dataclasses import replace

from mpnet.backends import onnxruntime
from mpnet.formats.documents.target_file import bundled_target

BACKEND = replace(onnxruntime.BACKEND, file=bundled_target("onnxruntime-fast"))
