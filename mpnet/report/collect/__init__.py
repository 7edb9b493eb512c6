# SPDX-License-Identifier: MIT
"""Fill reports and comparisons: from results, from the store of a sweep, by running networks again."""
