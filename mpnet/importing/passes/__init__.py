# SPDX-License-Identifier: MIT
"""Passes: each takes a file's graph one step closer to the layers of a cfg; `mpnet.importing.model` lists them in order."""
