# SPDX-License-Identifier: MIT
"""Choose from what was measured: picks, safe losses, stability, runs in other engines, and the sweep's document."""
