# SPDX-License-Identifier: MIT
"""Files as such: read with limits, written whole or not at all, digests, blocks shared by processes."""
