# SPDX-License-Identifier: MIT
"""What is searched: the space of configurations, its objectives and constraints, and Pareto fronts over them."""
