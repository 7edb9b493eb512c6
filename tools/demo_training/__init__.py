# SPDX-License-Identifier: MIT
"""The demo network and its training, in PyTorch."""
