# SPDX-License-Identifier: MIT
"""A network as declared: layers, precisions, plans, options of quantisation, weights; no input or output."""
