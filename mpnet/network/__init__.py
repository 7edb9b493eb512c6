# SPDX-License-Identifier: MIT
"""One network with its weights, names and precisions, ready to run."""
