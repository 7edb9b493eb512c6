# SPDX-License-Identifier: MIT
"""The problem of a search: the space of configurations, its objectives and constraints, and Pareto fronts over them."""
