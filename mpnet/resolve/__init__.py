# SPDX-License-Identifier: MIT
"""The sources of commands (EXPERIMENT.yaml, RUN, STORE[:KEY] or NET.cfg) as experiments, configurations or networks."""
