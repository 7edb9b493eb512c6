# SPDX-License-Identifier: MIT
"""What a hunt took, as each prints at its end."""

from __future__ import annotations

import resource


def usage(slowest_s: float) -> str:
    """Return the most memory of this process or one that it waited for, and the longest time of an input or a command."""
    peak = max(resource.getrusage(process).ru_maxrss for process in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return f"at most {peak * 1024 / 1e6:.0f} MB and {slowest_s:.2f} s"
