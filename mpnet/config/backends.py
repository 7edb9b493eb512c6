# SPDX-License-Identifier: MIT
"""Kernels as `runtime.backends` names them."""

from __future__ import annotations

GPU, CPU, REFERENCE = "gpu", "cpu", "reference"
"""Those of a GPU, of the best table of this CPU, of the scalar table."""
