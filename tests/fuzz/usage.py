# SPDX-License-Identifier: MIT
"""What a hunt took, as each prints at its end."""

from __future__ import annotations

import resource


def usage(slowest_s: float) -> str:
    """Most memory of this process or one that it waited for, and the longest time of an input or a command."""
    most = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return f"at most {most * 1024 / 1e6:.0f} MB and {slowest_s:.2f} s"
