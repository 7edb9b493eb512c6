# SPDX-License-Identifier: MIT
"""Readers of other programs' files: each makes a `NodeGraph`, in ONNX's words and channels first."""
