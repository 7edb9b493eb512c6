# SPDX-License-Identifier: MIT
"""Pages, tables and comparisons of stored results; `rerun` computes again what a result does not keep."""
