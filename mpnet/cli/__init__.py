# SPDX-License-Identifier: MIT
"""One file per command."""
