# SPDX-License-Identifier: MIT
"""The way from images to network input, and from head tensors to boxes."""
