# SPDX-License-Identifier: MIT
"""Reports as pages: HTML, SVG, and the page's own program."""
