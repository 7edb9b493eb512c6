# SPDX-License-Identifier: MIT
"""From images to network input, and from head tensors to boxes."""
