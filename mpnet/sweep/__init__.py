# SPDX-License-Identifier: MIT
"""Many configurations: what is searched, how it is evaluated, stored and chosen from.

Rooms, lowest first: `store` (the file that keeps trials), `problem` (space, objectives, Pareto fronts), `evaluate` (shared
layers, worker processes), `search` (strategies and the loop that runs them); then `setup.py`, `choose` (picks, safe losses, the
sweep's document), and `run.py`, which tells the whole story.
"""
