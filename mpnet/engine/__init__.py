# SPDX-License-Identifier: MIT
"""From a network and a precision plan to executed steps."""
