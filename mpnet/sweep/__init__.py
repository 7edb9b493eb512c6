# SPDX-License-Identifier: MIT
"""Many configurations: what is searched, how it is evaluated, stored and chosen from.

Rooms, lowest first: `result.py` (the classes of a sweep's result), `store` (the file that keeps trials), `problem` (space,
objectives, Pareto fronts), `evaluate` (shared layers, worker processes), `search` (strategies and their loop); then
`setup.py`, `choose` (picks, safe losses, the sweep's result), and `run.py`, which tells the whole story.
"""
