# SPDX-License-Identifier: MIT
"""Reports as text: every table of the terminal."""
