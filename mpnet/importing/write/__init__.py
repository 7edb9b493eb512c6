# SPDX-License-Identifier: MIT
"""What is written: the sections of a cfg, their weights, and the keys that keep what a quantised file says."""
