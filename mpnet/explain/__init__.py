# SPDX-License-Identifier: MIT
"""Which layers lose an object: what the baseline finds and a configuration does not, layer by layer."""
