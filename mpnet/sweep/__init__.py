# SPDX-License-Identifier: MIT
"""Many configurations: the space, strategies, shared prefixes, workers, the store and what was found."""
