# SPDX-License-Identifier: MIT
"""Image files: what there is, how large it is, and whether a decoder should see it."""
