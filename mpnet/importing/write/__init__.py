# SPDX-License-Identifier: MIT
"""The output of an import: the sections of a cfg, their weights, and the keys that keep what a quantised file says."""
