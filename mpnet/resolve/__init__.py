# SPDX-License-Identifier: MIT
"""What a command is given (EXPERIMENT.yaml, RUN, STORE[:KEY] or NET.cfg) as an experiment, a configuration or a network."""
