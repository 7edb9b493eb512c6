# SPDX-License-Identifier: MIT
"""A tabular benchmark of methods that choose a precision per layer; docs/mixbench.md shows it at work.

problem = load_problem("aix-tensor")
problem.evaluate("ffffffqqqqq")     # measures on the images that choose; one pass
"""

from mixbench.problem import BudgetSpent, Problem, load_problem, problem_names

__all__ = ["BudgetSpent", "Problem", "load_problem", "problem_names"]
