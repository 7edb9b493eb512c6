# SPDX-License-Identifier: MIT
"""One configuration on one data set: what goes in, its identity, the run, the result and what is learnt from it."""
