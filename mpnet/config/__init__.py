# SPDX-License-Identifier: MIT
"""The contents and the identity of experiments: experiment files, protocol, measures, digests."""
