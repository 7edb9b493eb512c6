# SPDX-License-Identifier: MIT
"""The engine: from a network and a precision plan to executed steps."""
