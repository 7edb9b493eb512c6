# SPDX-License-Identifier: MIT
"""Pages, tables and comparisons of stored results: `data` says, `collect` fills, `text` and `html` render."""
