# SPDX-License-Identifier: MIT
"""Which layers lose accuracy (`mpnet analyze`), and which lose an object (`mpnet explain`)."""
