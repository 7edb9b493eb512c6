# SPDX-License-Identifier: MIT
"""What a report says: typed objects, and sentences about them. Nothing here opens a file."""
